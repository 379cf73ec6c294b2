//! The different stacks that allocated, and how much each did.
//!
//! A stack that was seen once stays. When there is no room for another one, what it allocates is
//! the rest's, so that sums stay right.

/// Frames of a stack that are kept, the innermost ones.
pub(crate) const MAX_FRAMES: usize = 64;

const MAX_STACKS: usize = 4096;
const MAX_FRAMES_IN_ALL: usize = 1 << 16;
const INDEX_SIZE: usize = 2 * MAX_STACKS;

/// Which stack it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackId(u16);

impl StackId {
    /// All stacks there was no room for.
    pub(crate) const REST: Self = Self(0);

    pub(crate) fn index(self) -> usize {
        self.0.into()
    }
}

/// What a stack allocated since sampling began, freed or not: estimates.
#[derive(Debug, Default)]
pub(crate) struct Allocated {
    hash: u64,
    first_frame: usize,
    frames: usize,
    pub(crate) objects: f64,
    pub(crate) bytes: f64,
}

pub(crate) struct Stacks {
    /// Open addressing; a zero is a free place, because the rest is not looked for.
    index: Vec<u16>,
    all: Vec<Allocated>,
    frames: Vec<usize>,
}

impl Stacks {
    /// Asks for all memory that will ever be needed; the kernel gives what is used.
    pub(crate) fn new() -> Self {
        let mut all = Vec::with_capacity(MAX_STACKS);
        all.push(Allocated::default());
        Self {
            index: vec![0; INDEX_SIZE],
            all,
            frames: Vec::with_capacity(MAX_FRAMES_IN_ALL),
        }
    }

    /// Finds a stack, or makes it known.
    pub(crate) fn intern(&mut self, frames: &[usize]) -> StackId {
        let hash = hash(frames);
        let mut place = usize::try_from(hash % INDEX_SIZE as u64).unwrap_or_default();
        // The index is twice as large as what it holds, so this ends.
        loop {
            let Some(found) = self.index.get_mut(place) else {
                return StackId::REST;
            };
            if *found == 0 {
                break;
            }
            let id = StackId(*found);
            if let Some(known) = self.all.get(id.index())
                && known.hash == hash
                && self.frames(id) == frames
            {
                return id;
            }
            place = (place + 1) % INDEX_SIZE;
        }
        self.add(place, hash, frames).unwrap_or(StackId::REST)
    }

    fn add(&mut self, place: usize, hash: u64, frames: &[usize]) -> Option<StackId> {
        let has_room =
            self.all.len() < MAX_STACKS && self.frames.len() + frames.len() <= MAX_FRAMES_IN_ALL;
        if !has_room {
            return None;
        }
        let id = u16::try_from(self.all.len()).ok()?;
        *self.index.get_mut(place)? = id;
        self.all.push(Allocated {
            hash,
            first_frame: self.frames.len(),
            frames: frames.len(),
            ..Allocated::default()
        });
        self.frames.extend_from_slice(frames);
        Some(StackId(id))
    }

    pub(crate) fn count(&mut self, id: StackId, objects: f64, bytes: f64) {
        if let Some(stack) = self.all.get_mut(id.index()) {
            stack.objects += objects;
            stack.bytes += bytes;
        }
    }

    /// All of them; the first one is the rest.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[usize], &Allocated)> {
        self.all.iter().map(|stack| (self.of(stack), stack))
    }

    fn frames(&self, id: StackId) -> &[usize] {
        self.all.get(id.index()).map_or(&[], |stack| self.of(stack))
    }

    fn of(&self, stack: &Allocated) -> &[usize] {
        let range = stack.first_frame..stack.first_frame + stack.frames;
        self.frames.get(range).unwrap_or_default()
    }
}

/// FNV-1a, a frame at a time.
fn hash(frames: &[usize]) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mixed = frames.iter().fold(BASIS, |hash, frame| {
        (hash ^ *frame as u64).wrapping_mul(PRIME)
    });
    mixed ^ (mixed >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_is_known_again() {
        let mut stacks = Stacks::new();
        let (one, other) = (stacks.intern(&[1, 2, 3]), stacks.intern(&[1, 2]));
        assert_ne!(one, other);
        assert_eq!(stacks.intern(&[1, 2, 3]), one);
        assert_eq!(stacks.frames(one), [1, 2, 3]);
        assert_eq!(stacks.frames(other), [1, 2]);
    }

    #[test]
    fn what_finds_no_room_is_the_rest_and_nothing_grows() {
        let mut stacks = Stacks::new();
        let capacities = (stacks.all.capacity(), stacks.frames.capacity());
        let ids: Vec<_> = (1..=2 * MAX_STACKS)
            .map(|number| stacks.intern(&[number; 17]))
            .collect();
        let kept = ids.iter().filter(|id| **id != StackId::REST).count();
        assert_eq!(kept, MAX_FRAMES_IN_ALL / 17);
        assert_eq!(stacks.intern(&[1; 17]), ids[0]);
        let (mut many, mut short) = (Stacks::new(), 0);
        for number in 1..=2 * MAX_STACKS {
            short += usize::from(many.intern(&[number]) != StackId::REST);
        }
        assert_eq!(short, MAX_STACKS - 1);
        assert_eq!(
            (stacks.all.capacity(), stacks.frames.capacity()),
            capacities
        );
    }
}
