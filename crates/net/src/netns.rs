//! Network namespaces.

mod named;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, which exists as long as it is open.
#[derive(Debug)]
pub struct Netns {
    fd: OwnedFd,
}

impl Netns {
    /// Opens the netns at `path`. [`Netns::visit`] fails if it is something else.
    pub fn open(path: &str) -> io::Result<Self> {
        // A FIFO at this path would block.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())?;
        Ok(Self { fd })
    }

    /// The netns of this thread.
    pub fn current() -> io::Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// Whether both are the same.
    pub fn is(&self, other: &Self) -> io::Result<bool> {
        let (ours, theirs) = (fstat(&self.fd)?, fstat(&other.fd)?);
        Ok((ours.st_dev, ours.st_ino) == (theirs.st_dev, theirs.st_ino))
    }

    /// Runs `work` in this netns and returns to `home`, the netns of this thread.
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

/// Why [`Netns::visit`] failed.
#[derive(Debug, thiserror::Error)]
pub enum VisitError {
    /// Entering failed, for example because it is not a netns.
    #[error("enter the network namespace")]
    Enter(#[source] io::Error),
    /// Returning failed. This thread must not continue: it is in the wrong netns.
    #[error("return from the network namespace")]
    Return(#[source] io::Error),
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
