//! Network namespaces.

mod named;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

pub use named::{ensure_named, remove_named};

/// A network namespace, kept alive by being open.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

impl Netns {
    /// Opens the namespace at `path`. That it is one shows when it is used.
    pub fn open(path: &str) -> io::Result<Self> {
        // A pipe in its place must not hold us up.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        Ok(Self { fd })
    }

    /// The namespace that this thread is in.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        let (ours, theirs) = (fstat(&self.fd)?, fstat(&other.fd)?);
        Ok((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
    }

    /// Does `work` in this namespace, and comes back to `home`, where the thread is now.
    pub fn visit<T>(&self, home: &Self, work: impl FnOnce() -> T) -> Result<T, VisitError> {
        let network = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.fd.as_fd(), network)
            .map_err(|error| VisitError::Enter(error.into()))?;
        let outcome = work();
        move_into_link_name_space(home.fd.as_fd(), network)
            .map_err(|error| VisitError::Return(error.into()))?;
        Ok(outcome)
    }
}

/// Why a namespace could not be visited.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// It could not be entered: it is no namespace, say.
    #[error("enter the network namespace")]
    Enter(#[source] io::Error),
    /// The way back failed. What this thread did next would be done in the wrong place.
    #[error("come back from the network namespace")]
    Return(#[source] io::Error),
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
