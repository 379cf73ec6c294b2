//! Whether something is a left-over: pure, and on the safe side.
//!
//! Nothing is a left-over because evidence is missing. What is locked is in flight. What looks like
//! a left-over must do so for a while, at two looks at least, by a clock that nobody can set.

use std::fmt;
use std::time::Duration;

/// Whether something was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// It is there.
    There,
    /// It is surely not.
    Gone,
    /// It could not be looked at.
    Unknown,
}

/// What a record says of its ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Nothing: the ADD did not come to its first step.
    Nothing,
    /// Nothing that can be understood.
    Nonsense,
    /// It was begun.
    HalfMade,
    /// It came to its end.
    Complete,
}

/// When a record was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boot {
    /// Since the kernel was started.
    This,
    /// Before that.
    Earlier,
    /// Nobody can tell.
    Unknown,
}

/// Who made the pod's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Datapath {
    /// We: it has a link of ours.
    Native,
    /// Other plugins.
    Other,
}

/// Whether somebody works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Nobody.
    Free,
    /// Somebody.
    Held,
    /// Nobody can tell.
    Unknown,
}

/// How old something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// By the time of its file; `None` if the clock can't be trusted.
    pub by_file: Option<Duration>,
    /// For how long we have seen it like this: nothing at the first look.
    pub seen_for: Duration,
}

/// How old something must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longer than any ADD takes.
    pub grace: Duration,
    /// The time between two looks.
    pub interval: Duration,
}

/// What is known about a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordEvidence {
    /// What it says.
    pub written: Written,
    /// When it was written.
    pub boot: Boot,
    /// Who made the network.
    pub datapath: Datapath,
    /// The link of ours on the host.
    pub link: Sight,
    /// The pod's namespace.
    pub namespace: Sight,
    /// Whether somebody works on the attachment.
    pub lock: Lock,
}

/// What is known about a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseEvidence {
    /// Whether only our own datapath leases from this store.
    pub is_of_native_store: bool,
    /// Whether it names its owner's interface: a lease of ours does.
    pub names_interface: bool,
    /// The owner's record.
    pub record: Sight,
    /// Records of this boot, whosever: without any, they may have been wiped.
    pub records: Sight,
    /// The owner's link.
    pub link: Sight,
    /// A route or a link that leads to the address.
    pub way: Sight,
    /// Whether somebody works on the store.
    pub lock: Lock,
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It belongs to a pod that lives.
    Alive(Life),
    /// Somebody works on it.
    InFlight,
    /// It can't be told, so it stays.
    Unknown(Doubt),
    /// It looks like a left-over, but not for long enough.
    Waiting(Cause),
    /// A left-over.
    Orphan(Cause),
}

/// The sign of life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// A link of ours is in the kernel.
    Link,
    /// The namespace is there.
    Namespace,
    /// There is a record, which is judged by itself.
    Record,
}

/// What is missing for a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The record can't be understood.
    Damaged,
    /// The kernel did not tell.
    Kernel,
    /// The namespace's path can't be looked at from here.
    Namespace,
    /// Whether somebody works on it can't be told.
    Lock,
    /// Another plugin may own it.
    Ownership,
    /// There are no records, or they can't be read: they may have been wiped.
    Records,
}

/// How something was left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Its pod ended without a DEL.
    Died,
    /// Its ADD was ended half-way, and no DEL came.
    HalfMade,
    /// Its ADD was ended before it made anything.
    NeverBegun,
    /// It is of an earlier boot.
    EarlierBoot,
    /// Nothing else of its pod is left.
    Leaked,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Died => "the pod ended without a DEL",
            Self::HalfMade => "the ADD was ended half-way",
            Self::NeverBegun => "the ADD was ended before it made anything",
            Self::EarlierBoot => "of an earlier boot",
            Self::Leaked => "nothing else of its pod is left",
        })
    }
}

impl RecordEvidence {
    /// What the record is.
    pub fn judge(self, age: Age, limits: Limits) -> Verdict {
        match self.lock {
            Lock::Held => return Verdict::InFlight,
            Lock::Unknown => return Verdict::Unknown(Doubt::Lock),
            Lock::Free => {}
        }
        match self.cause() {
            Ok(cause) => aged(cause, age, limits),
            Err(verdict) => verdict,
        }
    }

    /// How it was left behind; else what it is.
    fn cause(self) -> Result<Cause, Verdict> {
        let unseen = |doubt| Err(Verdict::Unknown(doubt));
        let is_native = self.datapath == Datapath::Native;
        match self.written {
            Written::Nonsense => return unseen(Doubt::Damaged),
            Written::Nothing => match self.link {
                Sight::There => return Err(Verdict::Alive(Life::Link)),
                Sight::Unknown => return unseen(Doubt::Kernel),
                Sight::Gone => return Ok(Cause::NeverBegun),
            },
            Written::HalfMade | Written::Complete => {}
        }
        if is_native && self.link == Sight::Unknown {
            return unseen(Doubt::Kernel);
        }
        if self.written == Written::Complete {
            if is_native && self.link == Sight::There {
                return Err(Verdict::Alive(Life::Link));
            }
            if self.namespace == Sight::There {
                return Err(Verdict::Alive(Life::Namespace));
            }
        }
        if self.namespace == Sight::Unknown {
            return unseen(Doubt::Namespace);
        }
        Ok(match (self.boot, self.written) {
            (Boot::Earlier, _) => Cause::EarlierBoot,
            (_, Written::Complete) => Cause::Died,
            _ => Cause::HalfMade,
        })
    }
}

impl LeaseEvidence {
    /// What the lease is.
    pub fn judge(self, age: Age, limits: Limits) -> Verdict {
        if !self.is_of_native_store || !self.names_interface {
            return Verdict::Unknown(Doubt::Ownership);
        }
        match self.lock {
            Lock::Held => return Verdict::InFlight,
            Lock::Unknown => return Verdict::Unknown(Doubt::Lock),
            Lock::Free => {}
        }
        match (self.record, self.records) {
            (Sight::There, _) => return Verdict::Alive(Life::Record),
            (Sight::Gone, Sight::There) => {}
            _ => return Verdict::Unknown(Doubt::Records),
        }
        match (self.link, self.way) {
            (Sight::There, _) => Verdict::Alive(Life::Link),
            (_, Sight::There) => Verdict::Unknown(Doubt::Ownership),
            (Sight::Gone, Sight::Gone) => aged(Cause::Leaked, age, limits),
            _ => Verdict::Unknown(Doubt::Kernel),
        }
    }
}

/// A file's time may be wrong by years, so it counts only for what we have seen twice.
fn aged(cause: Cause, age: Age, limits: Limits) -> Verdict {
    let is_old_by_file = age.by_file.is_some_and(|age| age >= limits.grace);
    let is_old_by_us = age.seen_for >= limits.grace;
    let is_seen_twice = !age.seen_for.is_zero();
    if is_seen_twice && (is_old_by_us || (is_old_by_file && age.seen_for >= limits.interval)) {
        Verdict::Orphan(cause)
    } else {
        Verdict::Waiting(cause)
    }
}

#[cfg(test)]
mod tests;
