use super::*;

fn function(name: &str) -> Function {
    Function {
        name: name.to_owned(),
        line: 0,
    }
}

fn stack(frames: &[usize], value: f64) -> Stack {
    Stack {
        frames: frames.to_vec(),
        allocated_objects: value,
        allocated_bytes: value * 100.0,
        live_objects: value / 2.0,
        live_bytes: value * 50.0,
    }
}

/// What each address stands for; the fifth has a function inlined.
fn resolve(frame: usize) -> Vec<Function> {
    match frame {
        1 => vec![function("heap::hook::note")],
        2 => vec![function("__rustc::__rust_alloc")],
        3 => vec![function("alloc::raw_vec::RawVec::grow")],
        4 => vec![function("daemon::main")],
        5 => vec![function("daemon::inlined"), function("daemon::main")],
        _ => Vec::new(),
    }
}

fn encoded(stacks: Vec<Stack>) -> protos::Profile {
    let profile = Profile {
        bytes_per_sample: 4096,
        stacks,
        lost: 0,
    };
    encode(&profile, resolve)
}

/// The functions of each sample, the innermost first.
fn names(file: &protos::Profile) -> Vec<Vec<&str>> {
    let text = |id: i64| file.string_table[usize::try_from(id).unwrap()].as_str();
    let by_id = |id: u64| usize::try_from(id).unwrap() - 1;
    let of = |location: &u64| {
        let lines = &file.location[by_id(*location)].line;
        lines
            .iter()
            .map(|line| text(file.function[by_id(line.function_id)].name))
    };
    let samples = file.sample.iter();
    samples
        .map(|sample| sample.location_id.iter().flat_map(of).collect())
        .collect()
}

#[test]
fn samples_have_names_and_not_the_allocators() {
    let file = encoded(vec![stack(&[1, 2, 3, 4], 2.0), stack(&[2, 5, 9], 4.0)]);
    assert_eq!(
        names(&file),
        [
            vec!["alloc::raw_vec::RawVec::grow", "daemon::main"],
            vec!["daemon::inlined", "daemon::main"],
        ]
    );
    assert_eq!(file.sample[1].location_id.len(), 2);
    assert_eq!(file.sample[0].value, [2, 200, 1, 100]);
    assert_eq!(file.function.len(), 3);
    assert_eq!((file.period, file.string_table[0].as_str()), (4096, ""));
    let default = usize::try_from(file.default_sample_type).unwrap();
    assert_eq!(file.string_table[default], "inuse_space");
}

#[test]
fn what_has_no_stack_has_a_name_all_the_same() {
    let file = encoded(vec![stack(&[], 2.0), stack(&[1, 2], 2.0)]);
    let rest = vec!["[stacks there was no room for]"];
    assert_eq!(names(&file), [rest.clone(), rest]);
}

#[test]
fn lost_samples_are_told_of() {
    let profile = Profile {
        lost: 3,
        ..Profile::default()
    };
    let file = encode(&profile, resolve);
    let comment = usize::try_from(file.comment[0]).unwrap();
    assert!(file.string_table[comment].starts_with("3 samples"));
}
