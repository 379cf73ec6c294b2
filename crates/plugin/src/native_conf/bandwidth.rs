//! Rate limits, with the keys of the reference plugin `bandwidth`.
//!
//! `runtimeConfig.bandwidth` has `ingressRate`, `ingressBurst`, `egressRate` and `egressBurst`, in
//! bits (per second); the same keys in the configuration itself limit every pod, and win.

use attachment::RateLimit;
use cni::{Error, Keys, code};

/// Maximum delay of a packet, as in the reference plugin.
const LATENCY_MILLIS: u64 = 25;
/// Maximum size of a GSO packet. With a smaller burst, the kernel segments packets first.
const LARGEST_SEGMENT_BYTES: u64 = 64 * 1024;
const ETHERNET_HEADER_BYTES: u64 = 14;
/// The range of the annotations of Kubernetes: 1 kbit/s to 1 Pbit/s.
const RATES: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000_000;
const MAX_BURST_BITS: u64 = u32::MAX as u64 * 8;
/// Bursts that containerd, cri-o and old cri-o set by default. Taken literally, half a gigabyte and
/// more would pass before the limit applies.
const PLACEHOLDERS: [u64; 3] = [u32::MAX as u64, MAX_BURST_BITS - 1, MAX_BURST_BITS];

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) ingress: Option<RateLimit>,
    pub(super) egress: Option<RateLimit>,
}

/// Parses the limits of a pod. The limits of the configuration itself win per direction.
pub(super) fn parse(keys: Keys<'_>, mtu_bytes: u32) -> Result<Limits, Error> {
    let runtime_path = keys.name("runtimeConfig");
    let path = format!("{runtime_path}.bandwidth");
    let of_runtime = match keys.object("runtimeConfig")? {
        Some(map) => Keys::new(map, &runtime_path).object("bandwidth")?,
        None => None,
    };
    let places = [Some(keys), of_runtime.map(|map| Keys::new(map, &path))];
    for place in places.into_iter().flatten() {
        for key in ["shapedSubnets", "unshapedSubnets"] {
            refuse_subnets(place, key)?;
        }
    }
    let limit = |rate: &str, burst: &str| {
        let decides =
            |place: &Keys<'_>| place.value(rate).is_some() || place.value(burst).is_some();
        match places.into_iter().flatten().find(decides) {
            Some(place) => bucket(place, rate, burst, mtu_bytes),
            None => Ok(None),
        }
    };
    Ok(Limits {
        ingress: limit("ingressRate", "ingressBurst")?,
        egress: limit("egressRate", "egressBurst")?,
    })
}

/// Limits per subnet are not supported.
fn refuse_subnets(place: Keys<'_>, key: &str) -> Result<(), Error> {
    if place.texts(key)?.is_empty() {
        return Ok(());
    }
    let wrong = place.wrong(key, "empty, because limits apply to whole interfaces");
    Err(Error {
        code: code::UNSUPPORTED_FIELD,
        msg: format!("{}: chain the plugin \"bandwidth\" instead", wrong.msg),
        ..wrong
    })
}

fn bucket(
    place: Keys<'_>,
    rate_key: &str,
    burst_key: &str,
    mtu_bytes: u32,
) -> Result<Option<RateLimit>, Error> {
    let rate = bits(place, rate_key, "a whole number of bits per second")?;
    let burst = bits(place, burst_key, "a whole number of bits")?;
    let burst = burst.filter(|bits| !PLACEHOLDERS.contains(bits));
    let Some(rate) = rate else {
        return match burst {
            None => Ok(None),
            Some(burst) => Err(Error::config(format!(
                "{} {burst} has no effect without {}: add it, or remove the burst",
                place.name(burst_key),
                place.name(rate_key)
            ))),
        };
    };
    if !RATES.contains(&rate) {
        return Err(place.wrong(
            rate_key,
            "from 1000 (1 kbit/s) to 1000000000000000 (1 Pbit/s), or 0 for no limit",
        ));
    }
    if burst.is_some_and(|bits| bits > MAX_BURST_BITS) {
        return Err(place.wrong(burst_key, "at most 34359738360 bits (4 GB)"));
    }
    let rate = rate / 8;
    let waiting = rate * LATENCY_MILLIS / 1000;
    let burst = burst.map_or(waiting.max(LARGEST_SEGMENT_BYTES), |bits| bits / 8);
    // `tbf_enqueue` drops packets that are larger than the burst.
    let burst = burst.max(u64::from(mtu_bytes) + ETHERNET_HEADER_BYTES);
    let limit = burst.saturating_add(waiting);
    Ok(Some(RateLimit {
        rate,
        burst: u32::try_from(burst).unwrap_or(u32::MAX),
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    }))
}

/// A number of bits; 0 counts as absent.
fn bits(place: Keys<'_>, key: &str, wanted: &str) -> Result<Option<u64>, Error> {
    match place.value(key) {
        None => Ok(None),
        Some(value) => match value.as_u64() {
            None => Err(place.wrong(key, wanted)),
            Some(bits) => Ok(Some(bits).filter(|bits| *bits > 0)),
        },
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn parsed(conf: &Value) -> Result<Limits, Error> {
        parse(Keys::new(conf.as_object().unwrap(), ""), 1280)
    }

    fn of_runtime(bandwidth: &Value) -> Result<Limits, Error> {
        parsed(&json!({ "runtimeConfig": { "bandwidth": bandwidth } }))
    }

    fn bucket(rate: u64, burst: u32, limit: u32) -> RateLimit {
        RateLimit { rate, burst, limit }
    }

    #[test]
    fn rates_are_converted_to_bytes_with_25_ms_of_queue() {
        let limits = of_runtime(&json!({ "ingressRate": 8_000_000, "ingressBurst": 800_000,
            "egressRate": 80_000_000, "egressBurst": 1_600_000 }))
        .unwrap();
        assert_eq!(limits.ingress, Some(bucket(1_000_000, 100_000, 125_000)));
        assert_eq!(limits.egress, Some(bucket(10_000_000, 200_000, 450_000)));
    }

    #[rstest]
    #[case::no_burst(json!({ "ingressRate": 8_000_000 }), Some(bucket(1_000_000, 65_536, 90_536)))]
    #[case::fast(json!({ "ingressRate": 8_000_000_000_u64 }),
        Some(bucket(1_000_000_000, 25_000_000, 50_000_000)))]
    #[case::burst_0(json!({ "ingressRate": 8_000_000, "ingressBurst": 0 }),
        Some(bucket(1_000_000, 65_536, 90_536)))]
    #[case::containerd(json!({ "IngressRate": 8_000_000, "IngressBurst": 4_294_967_295_u64 }),
        Some(bucket(1_000_000, 65_536, 90_536)))]
    #[case::crio(json!({ "ingressRate": 8_000_000, "ingressBurst": 34_359_738_359_u64 }),
        Some(bucket(1_000_000, 65_536, 90_536)))]
    #[case::below_a_packet(json!({ "ingressRate": 8_000, "ingressBurst": 800 }),
        Some(bucket(1_000, 1_294, 1_319)))]
    #[case::largest(json!({ "ingressRate": 1_000_000_000_000_000_u64,
        "ingressBurst": 34_359_738_352_u64 }), Some(bucket(125_000_000_000_000, 4_294_967_294, u32::MAX)))]
    #[case::fastest(json!({ "ingressRate": 1_000_000_000_000_000_u64 }),
        Some(bucket(125_000_000_000_000, u32::MAX, u32::MAX)))]
    #[case::unlimited(json!({ "ingressRate": 0, "ingressBurst": 0 }), None)]
    #[case::null(json!({ "ingressRate": null }), None)]
    #[case::nothing(json!({}), None)]
    #[case::placeholder_alone(json!({ "ingressBurst": 4_294_967_295_u64 }), None)]
    #[case::no_subnets(json!({ "shapedSubnets": [], "unshapedSubnets": null }), None)]
    fn placeholder_bursts_are_replaced(
        #[case] bandwidth: Value,
        #[case] ingress: Option<RateLimit>,
    ) {
        let limits = of_runtime(&bandwidth).unwrap();
        assert_eq!(
            limits,
            Limits {
                ingress,
                egress: None
            }
        );
    }

    #[rstest]
    #[case(json!({ "ingressRate": -1 }), code::INVALID_CONFIG, "ingressRate", "-1")]
    #[case(json!({ "ingressRate": 999 }), code::INVALID_CONFIG, "ingressRate", "999")]
    #[case(json!({ "ingressRate": 1.5 }), code::INVALID_CONFIG, "ingressRate", "1.5")]
    #[case(json!({ "egressRate": "1M" }), code::INVALID_CONFIG, "egressRate", "1M")]
    #[case(json!({ "egressRate": 1_000_000_000_000_001_u64 }), code::INVALID_CONFIG,
        "egressRate", "1000000000000001")]
    #[case(json!({ "egressRate": 8_000, "egressBurst": -8 }), code::INVALID_CONFIG,
        "egressBurst", "-8")]
    #[case(json!({ "egressRate": 8_000, "egressBurst": 34_359_738_361_u64 }),
        code::INVALID_CONFIG, "egressBurst", "34359738361")]
    #[case(json!({ "egressBurst": 8_000 }), code::INVALID_CONFIG, "egressBurst 8000",
        "egressRate")]
    #[case(json!({ "shapedSubnets": ["10.0.0.0/8"] }), code::UNSUPPORTED_FIELD,
        "runtimeConfig.bandwidth.shapedSubnets", "10.0.0.0/8")]
    fn invalid_limits_are_rejected(
        #[case] bandwidth: Value,
        #[case] code: u32,
        #[case] key: &str,
        #[case] part: &str,
    ) {
        let error = of_runtime(&bandwidth).unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(
            error.msg.contains(key) && error.msg.contains(part),
            "{error}"
        );
        assert!(of_runtime(&json!([])).is_err());
    }

    #[test]
    fn a_limit_of_the_configuration_wins_for_its_direction() {
        let limits = parsed(&json!({
            "ingressRate": 8_000_000, "ingressBurst": 800_000,
            "runtimeConfig": { "bandwidth": {
                "ingressRate": 16_000_000, "egressRate": 80_000_000, "egressBurst": 1_600_000 } }
        }))
        .unwrap();
        assert_eq!(limits.ingress, Some(bucket(1_000_000, 100_000, 125_000)));
        assert_eq!(limits.egress, Some(bucket(10_000_000, 200_000, 450_000)));
    }
}
