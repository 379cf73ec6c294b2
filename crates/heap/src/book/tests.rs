use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Allocate { at: usize, size: usize, by: usize },
    Free { at: usize },
    Fail { at: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = || (1_usize..200).prop_map(|number| 0x5555_0000_0000 + number * 16);
    let step = prop_oneof![
        3 => (at(), 1_usize..100_000, 1_usize..8)
            .prop_map(|(at, size, by)| Step::Allocate { at, size, by }),
        2 => at().prop_map(|at| Step::Free { at }),
        1 => at().prop_map(|at| Step::Fail { at }),
    ];
    prop::collection::vec(step, 0..400)
}

/// Sizes and stacks of what is in use, by address.
type Model = BTreeMap<usize, (usize, usize)>;

fn live_bytes(book: &Book, model: &Model, by: usize) -> f64 {
    let sizes = model.values().filter(|(_, stack)| *stack == by);
    sizes.map(|(size, _)| book.estimate(*size).1).sum()
}

fn is_near(one: f64, other: f64) -> bool {
    (one - other).abs() <= 1e-6 * (1.0 + one.abs())
}

proptest! {
    #[test]
    fn whatever_happens_the_live_ones_are_known(steps in steps()) {
        let live = Box::new(Live::new());
        let mut book = Book::new(4096);
        let (mut model, mut ever) = (Model::new(), BTreeMap::<usize, f64>::new());
        for step in steps {
            match step {
                // The address may be in use: then its freeing was missed.
                Step::Allocate { at, size, by } => {
                    book.note(&live, at, size, &[by, 7, 7]);
                    model.insert(at, (size, by));
                    *ever.entry(by).or_default() += book.estimate(size).1;
                }
                Step::Free { at } => {
                    let known = book.take(&live, at).map(|record| record.size);
                    prop_assert_eq!(known, model.remove(&at).map(|(size, _)| size));
                }
                // A realloc that failed.
                Step::Fail { at } => {
                    if let Some(record) = book.take(&live, at) {
                        book.put(&live, at, record);
                    }
                }
            }
        }
        prop_assert_eq!(book.lost, 0);
        prop_assert_eq!(live.taken().count(), model.len());
        let profile = book.profile(&live);
        prop_assert_eq!(profile.stacks.len(), ever.len());
        for stack in profile.stacks {
            let by = stack.frames[0];
            prop_assert!(is_near(stack.live_bytes, live_bytes(&book, &model, by)));
            prop_assert!(is_near(stack.allocated_bytes, ever[&by]));
        }
    }
}

#[test]
fn more_than_there_is_room_for_is_counted_as_lost() {
    let live = Box::new(Live::new());
    let mut book = Book::new(4096);
    let addresses = (1..=2 * PLACES).map(|number| number * 16);
    addresses
        .clone()
        .for_each(|address| book.note(&live, address, 4096, &[1]));
    let kept = live.taken().count();
    assert!(kept <= PLACES);
    assert_eq!(book.lost, (2 * PLACES - kept) as u64);
    addresses.for_each(|address| {
        book.take(&live, address);
    });
    assert_eq!(live.taken().count(), 0);
}

#[test]
fn a_small_one_stands_for_many_and_a_large_one_for_itself() {
    let book = Book::new(1 << 19);
    let (objects, bytes) = book.estimate(64);
    assert!((8191.0..8194.0).contains(&objects), "{objects}");
    assert!(is_near(bytes, objects * 64.0));
    let (objects, _) = book.estimate(64 << 20);
    assert!(is_near(objects, 1.0), "{objects}");
}
