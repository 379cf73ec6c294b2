//! Rate limits by the tbf qdisc.

use crate::netlink::{Batch, flag};

const RTM_NEWQDISC: u16 = 36;
const TC_H_ROOT: u32 = 0xffff_ffff;
const TCA_KIND: u16 = 1;
const TCA_OPTIONS: u16 = 2;
const TCA_TBF_PARMS: u16 = 1;
const TCA_TBF_RATE64: u16 = 4;
const TCA_TBF_BURST: u16 = 6;
const TC_LINKLAYER_ETHERNET: u8 = 1;

/// A token bucket filter, `man 8 tc-tbf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Bytes per second.
    pub rate: u64,
    /// Bucket size in bytes.
    pub burst: u32,
    /// Bytes that may queue; more are dropped.
    pub limit: u32,
}

impl TokenBucket {
    /// Sets it as the root qdisc of the link with this index.
    pub fn add_to(&self, batch: &mut Batch, link: u32) {
        let attempt = format!("set qdisc tbf on link {link}");
        let flags = flag::CREATE | flag::REPLACE;
        batch.add(RTM_NEWQDISC, flags, attempt, |message| {
            // struct tcmsg
            message.fixed(&[0; 4]);
            message.fixed(&link.to_ne_bytes());
            message.fixed(&[0; 4]);
            message.fixed(&TC_H_ROOT.to_ne_bytes());
            message.fixed(&[0; 4]);
            message.text(TCA_KIND, "tbf");
            message.nest(TCA_OPTIONS, |options| {
                options.attribute(TCA_TBF_PARMS, &self.parameters());
                options.attribute(TCA_TBF_RATE64, &self.rate.to_ne_bytes());
                options.u32(TCA_TBF_BURST, self.burst);
            });
        });
    }

    /// `struct tc_tbf_qopt`; rate64 and burst attributes override its units.
    fn parameters(&self) -> Vec<u8> {
        let rate = u32::try_from(self.rate).unwrap_or(u32::MAX);
        let mut bytes = vec![0, TC_LINKLAYER_ETHERNET, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&rate.to_ne_bytes());
        bytes.extend_from_slice(&[0; 12]);
        bytes.extend_from_slice(&self.limit.to_ne_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes
    }
}
