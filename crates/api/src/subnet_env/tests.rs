use std::env::temp_dir;
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;
use rstest::rstest;

use super::*;

/// A file with `text` that is gone at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &[u8]) -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = temp_dir().join(format!("subnet-env-{}-{number}", process::id()));
        io::Write::write_all(&mut fs::File::create(&path).unwrap(), text).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn load(text: &str, env: &[(&str, &str)]) -> Result<SubnetEnv, SubnetEnvError> {
    let file = Scratch::new(text.as_bytes());
    SubnetEnv::load(&file.0, |key| {
        env.iter()
            .find(|(name, _)| *name == key)
            .map(|(_, value)| (*value).to_owned())
    })
}

const DUAL: &str = "\
# written by headcni-daemon
HEADCNI_NETWORK=10.244.0.0/16,10.245.0.0/16
HEADCNI_SUBNET=10.244.1.1/24
HEADCNI_IPV6_NETWORK=fd00:10:244::/48
HEADCNI_IPV6_SUBNET=fd00:10:244:1::1/64
HEADCNI_MTU=1280
HEADCNI_IPMASQ=true
HEADCNI_LATER=something
";

const V4: &str = "\
HEADCNI_NETWORK=10.244.0.0/16
HEADCNI_SUBNET=10.244.1.0/24
HEADCNI_MTU=1280
HEADCNI_IPMASQ=false
";

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn a_dual_stack_file_is_read_whole() {
    let env = load(DUAL, &[]).unwrap();
    assert_eq!(env.mtu_bytes, 1280);
    assert!(env.node_masquerades);
    let [v4, v6] = env.families.try_into().unwrap();
    assert_eq!(v4.networks, [net("10.244.0.0/16"), net("10.245.0.0/16")]);
    assert_eq!(v4.subnets[0].net, net("10.244.1.0/24"));
    assert_eq!(v4.subnets[0].gateway, Some("10.244.1.1".parse().unwrap()));
    assert_eq!(v6.subnets[0].net, net("fd00:10:244:1::/64"));
}

#[test]
fn without_host_bits_no_gateway_is_named() {
    let env = load(V4, &[]).unwrap();
    assert_eq!(env.families[0].subnets[0].gateway, None);
    assert!(!env.node_masquerades);
}

#[test]
fn the_environment_wins_over_the_file() {
    let env = load(
        V4,
        &[("HEADCNI_SUBNET", "10.244.7.0/24"), ("HEADCNI_MTU", "1400")],
    )
    .unwrap();
    assert_eq!(env.families[0].subnets[0].net, net("10.244.7.0/24"));
    assert_eq!(env.mtu_bytes, 1400);
}

#[test]
fn the_environment_alone_is_enough() {
    let all = [
        ("HEADCNI_NETWORK", "10.244.0.0/16"),
        ("HEADCNI_SUBNET", "10.244.7.0/24"),
        ("HEADCNI_MTU", "1400"),
        ("HEADCNI_IPMASQ", "true"),
    ];
    assert!(load("garbage that nobody reads", &all).is_ok());
}

#[test]
fn an_absent_file_is_told_from_an_incomplete_one() {
    let missing = Path::new("/nonexistent/subnet.env");
    let error = SubnetEnv::load(missing, |_| None).unwrap_err();
    assert!(matches!(
        &error,
        SubnetEnvError::Absent {
            variable: "HEADCNI_SUBNET",
            ..
        }
    ));
    assert!(
        error.to_string().contains("/nonexistent/subnet.env"),
        "{error}"
    );
    assert!(error.to_string().contains("HEADCNI_SUBNET"), "{error}");
}

#[rstest]
#[case(V4, &[("HEADCNI_SUBNET", "10.250.0.0/24")], &["10.250.0.0/24", "HEADCNI_NETWORK"])]
#[case(V4, &[("HEADCNI_SUBNET", "10.244.1.0")], &["HEADCNI_SUBNET", "10.244.1.0", "environment"])]
#[case(V4, &[("HEADCNI_SUBNET", "10.244.1.0/31")], &["10.244.1.0/31", "small"])]
#[case(V4, &[("HEADCNI_SUBNET", "10.244.1.255/24")], &["broadcast"])]
#[case(V4, &[("HEADCNI_SUBNET", "10.244.1.0/24,10.244.1.128/25")], &["overlap"])]
#[case(V4, &[("HEADCNI_SUBNET", "fd00::/64")], &["family"])]
#[case(V4, &[("HEADCNI_MTU", "12")], &["HEADCNI_MTU", "12", "68"])]
#[case(V4, &[("HEADCNI_MTU", "big")], &["HEADCNI_MTU", "big"])]
#[case(V4, &[("HEADCNI_IPMASQ", "tru")], &["HEADCNI_IPMASQ", "tru"])]
#[case(DUAL, &[("HEADCNI_MTU", "1000")], &["1280"])]
#[case("HEADCNI_NETWORK", &[], &["line 1", "KEY=VALUE"])]
#[case("HEADCNI_MTU=\n", &[], &["line 1", "HEADCNI_MTU"])]
#[case("HEADCNI_MTU=1\nHEADCNI_MTU=2\n", &[], &["line 2", "HEADCNI_MTU=1", "HEADCNI_MTU=2"])]
fn nonsense_is_refused_by_name(
    #[case] text: &str,
    #[case] env: &[(&str, &str)],
    #[case] parts: &[&str],
) {
    let error = load(text, env).unwrap_err().to_string();
    for part in parts {
        assert!(error.contains(part), "{part} is not in {error}");
    }
}

#[test]
fn a_file_cut_off_anywhere_is_refused_or_means_the_same() {
    let whole = load(V4, &[]).unwrap();
    for length in 0..V4.len() {
        if let Ok(read) = load(&V4[..length], &[]) {
            assert_eq!(read, whole, "cut off after {length} bytes");
        }
    }
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let file = Scratch::new(b"HEADCNI_MTU=\xff\xfe\n");
    let error = SubnetEnv::load(&file.0, |_| None).unwrap_err();
    assert!(matches!(error, SubnetEnvError::Unreadable { .. }));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "(HEADCNI_[A-Z0-9_]{0,12}=?[0-9a-f./:,]{0,20}\n?){0,6}") {
        let _ = load(&text, &[]);
    }
}
