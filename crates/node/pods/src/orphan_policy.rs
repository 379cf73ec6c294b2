//! Decides whether a record or a lease is an orphan. Pure, and conservative.
//!
//! Missing evidence never makes an orphan, and a held lock means that a CNI call is in progress. What
//! looks like an orphan must do so in at least two observations, for the grace period, by the
//! monotonic clock.

use std::fmt;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    Present,
    /// Proven, not just unseen.
    Absent,
    /// It could not be observed.
    Unknown,
}

/// The progress of the ADD, from its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// The ADD did not reach its first step.
    Empty,
    Damaged,
    HalfMade,
    Complete,
}

/// The kernel boot in which a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    This,
    Earlier,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// Our own: the pod has a managed link.
    Native,
    /// Delegated to other plugins.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    Free,
    Held,
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// By the modification time; `None` if the wall clock cannot be trusted.
    pub by_file: Option<Duration>,
    /// Since the first observation in this state; zero at the first one.
    pub seen_for: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longer than any ADD takes.
    pub grace: Duration,
    /// The time between two garbage collections.
    pub interval: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEvidence {
    pub state: RecordState,
    pub boot: Boot,
    pub datapath: Datapath,
    /// The managed link on the host.
    pub link: Presence,
    /// The pod's netns.
    pub netns: Presence,
    pub lock: Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEvidence {
    /// Only our own datapath leases from this store.
    pub is_of_native_store: bool,
    /// Our leases name the interface of their owner; those of other plugins may not.
    pub names_interface: bool,
    /// The owner's record.
    pub record: Presence,
    /// Any record of this boot: without one, the records may have been wiped.
    pub records: Presence,
    /// The owner's link.
    pub link: Presence,
    /// A route or a link to the address.
    pub route: Presence,
    /// The lock of the lease store.
    pub lock: Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assessment {
    InUse(SignOfLife),
    /// A CNI call holds the lock.
    InFlight,
    /// Evidence is missing, so it stays.
    Unknown(Doubt),
    /// An orphan, but not for long enough.
    Waiting(Cause),
    Orphan(Cause),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignOfLife {
    Link,
    Netns,
    /// The owner has a record, which is assessed by itself.
    Record,
}

/// The evidence that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The record cannot be parsed.
    Damaged,
    /// The kernel could not be queried.
    Kernel,
    /// The path of the netns is not visible from here.
    Netns,
    Lock,
    /// Another plugin may own it.
    Ownership,
    /// There are no readable records: they may have been wiped.
    Records,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The pod ended without a DEL.
    Died,
    /// The ADD was interrupted, and no DEL followed.
    HalfMade,
    /// The ADD was interrupted before its first step.
    NeverBegun,
    EarlierBoot,
    /// A lease whose owner has neither record nor link.
    Leaked,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "the pod ended without a DEL",
            Self::HalfMade => "the ADD was interrupted",
            Self::NeverBegun => "the ADD was interrupted before its first step",
            Self::EarlierBoot => "written in an earlier boot",
            Self::Leaked => "its owner has neither record nor link",
        })
    }
}

impl RecordEvidence {
    pub fn assess(self, age: Age, limits: Limits) -> Assessment {
        match self.lock {
            Lock::Held => return Assessment::InFlight,
            Lock::Unknown => return Assessment::Unknown(Doubt::Lock),
            Lock::Free => {}
        }
        match self.cause() {
            Ok(cause) => assess_age(cause, age, limits),
            Err(assessment) => assessment,
        }
    }

    /// Why it is an orphan, or the assessment if it is none.
    fn cause(self) -> Result<Cause, Assessment> {
        let unknown = |doubt| Err(Assessment::Unknown(doubt));
        let is_native = self.datapath == Datapath::Native;
        match self.state {
            RecordState::Damaged => return unknown(Doubt::Damaged),
            RecordState::Empty => match self.link {
                Presence::Present => return Err(Assessment::InUse(SignOfLife::Link)),
                Presence::Unknown => return unknown(Doubt::Kernel),
                Presence::Absent => return Ok(Cause::NeverBegun),
            },
            RecordState::HalfMade | RecordState::Complete => {}
        }
        if is_native && self.link == Presence::Unknown {
            return unknown(Doubt::Kernel);
        }
        if self.state == RecordState::Complete {
            if is_native && self.link == Presence::Present {
                return Err(Assessment::InUse(SignOfLife::Link));
            }
            if self.netns == Presence::Present {
                return Err(Assessment::InUse(SignOfLife::Netns));
            }
        }
        if self.netns == Presence::Unknown {
            return unknown(Doubt::Netns);
        }
        Ok(match (self.boot, self.state) {
            (Boot::Earlier, _) => Cause::EarlierBoot,
            (_, RecordState::Complete) => Cause::Died,
            _ => Cause::HalfMade,
        })
    }
}

impl LeaseEvidence {
    pub fn assess(self, age: Age, limits: Limits) -> Assessment {
        if !self.is_of_native_store || !self.names_interface {
            return Assessment::Unknown(Doubt::Ownership);
        }
        match self.lock {
            Lock::Held => return Assessment::InFlight,
            Lock::Unknown => return Assessment::Unknown(Doubt::Lock),
            Lock::Free => {}
        }
        match (self.record, self.records) {
            (Presence::Present, _) => return Assessment::InUse(SignOfLife::Record),
            (Presence::Absent, Presence::Present) => {}
            _ => return Assessment::Unknown(Doubt::Records),
        }
        match (self.link, self.route) {
            (Presence::Present, _) => Assessment::InUse(SignOfLife::Link),
            (_, Presence::Present) => Assessment::Unknown(Doubt::Ownership),
            (Presence::Absent, Presence::Absent) => assess_age(Cause::Leaked, age, limits),
            _ => Assessment::Unknown(Doubt::Kernel),
        }
    }
}

/// The modification time may be off by years, so it counts only from the second observation on.
fn assess_age(cause: Cause, age: Age, limits: Limits) -> Assessment {
    let is_old_by_file = age.by_file.is_some_and(|age| age >= limits.grace);
    let is_old_by_us = age.seen_for >= limits.grace;
    let is_seen_twice = !age.seen_for.is_zero();
    if is_seen_twice && (is_old_by_us || (is_old_by_file && age.seen_for >= limits.interval)) {
        Assessment::Orphan(cause)
    } else {
        Assessment::Waiting(cause)
    }
}

#[cfg(test)]
mod tests;
