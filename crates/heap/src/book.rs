//! The book: which stack allocated what, and what of it is in use.

use crate::live::{Live, PLACES};
use crate::stacks::{StackId, Stacks};

/// An allocation that was noted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    stack: StackId,
    size: usize,
}

const NOTHING: Record = Record {
    stack: StackId::REST,
    size: 0,
};

/// What is known while somebody samples. The addresses are kept apart, in [`Live`].
pub(crate) struct Book {
    pub(crate) bytes_per_sample: usize,
    stacks: Stacks,
    /// For each place of [`Live`].
    records: Vec<Record>,
    lost: u64,
}

/// What was allocated since sampling began, by stacks. Numbers are estimates for all allocations,
/// not counts of those that were noted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// The mean distance of samples.
    pub bytes_per_sample: usize,
    /// Each stack that allocated.
    pub stacks: Vec<Stack>,
    /// Noted allocations that found no place, so that they are missing among those in use.
    pub lost: u64,
}

/// What a stack allocated.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stack {
    /// Return addresses, the innermost first. Empty: all stacks there was no room for.
    pub frames: Vec<usize>,
    /// Allocations since sampling began.
    pub allocated_objects: f64,
    /// Their bytes.
    pub allocated_bytes: f64,
    /// Those in use.
    pub live_objects: f64,
    /// Their bytes.
    pub live_bytes: f64,
}

impl Book {
    pub(crate) fn new(bytes_per_sample: usize) -> Self {
        Self {
            bytes_per_sample,
            stacks: Stacks::new(),
            records: vec![NOTHING; PLACES],
            lost: 0,
        }
    }

    /// Notes an allocation.
    pub(crate) fn note(&mut self, live: &Live, address: usize, size: usize, frames: &[usize]) {
        let stack = self.stacks.intern(frames);
        let (objects, bytes) = self.estimate(size);
        self.stacks.count(stack, objects, bytes);
        self.put(live, address, Record { stack, size });
    }

    /// Notes an allocation as one in use.
    pub(crate) fn put(&mut self, live: &Live, address: usize, record: Record) {
        let place = live.insert(address);
        match place.and_then(|place| self.records.get_mut(place)) {
            Some(place) => *place = record,
            None => self.lost += 1,
        }
    }

    /// Forgets what was freed.
    pub(crate) fn take(&mut self, live: &Live, address: usize) -> Option<Record> {
        let place = live.find(address)?;
        live.remove(place);
        self.records.get(place).copied()
    }

    pub(crate) fn profile(&self, live: &Live) -> Profile {
        let known = self.stacks.iter().map(|(frames, allocated)| Stack {
            frames: frames.to_vec(),
            allocated_objects: allocated.objects,
            allocated_bytes: allocated.bytes,
            ..Stack::default()
        });
        let mut stacks: Vec<Stack> = known.collect();
        for record in live.taken().filter_map(|place| self.records.get(place)) {
            let (objects, bytes) = self.estimate(record.size);
            if let Some(stack) = stacks.get_mut(record.stack.index()) {
                stack.live_objects += objects;
                stack.live_bytes += bytes;
            }
        }
        stacks.retain(|stack| stack.allocated_objects > 0.0);
        Profile {
            bytes_per_sample: self.bytes_per_sample,
            stacks,
            lost: self.lost,
        }
    }

    /// For how many allocations and bytes one of this size stands: so many as its probability to
    /// be noted is small.
    #[expect(
        clippy::cast_precision_loss,
        reason = "an estimate is less exact than its type"
    )]
    fn estimate(&self, size: usize) -> (f64, f64) {
        let (size, mean) = (size.max(1) as f64, self.bytes_per_sample as f64);
        let objects = -1.0 / (-size / mean).exp_m1();
        (objects, objects * size)
    }
}

#[cfg(test)]
#[path = "book/tests.rs"]
mod tests;
