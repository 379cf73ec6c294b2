//! A heap profile in the format of `pprof`.
//!
//! <https://github.com/google/pprof/blob/main/proto/profile.proto>. Values are named as Go names
//! them, so that `-sample_index=inuse_space` and the like work.

use std::collections::HashMap;
use std::time::SystemTime;

use heap::{Profile, Stack};
use pprof::protos;

/// A function as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    /// Zero if it is not known.
    pub(super) line: u32,
}

/// Makes a file of a profile, and asks for the functions at each address once.
pub(super) fn encode(
    profile: &Profile,
    mut resolve: impl FnMut(usize) -> Vec<Function>,
) -> protos::Profile {
    let mut file = File::default();
    file.string("");
    let sample_type = [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
    ]
    .map(|(ty, unit)| file.value_type(ty, unit))
    .to_vec();
    let period_type = Some(file.value_type("space", "bytes"));
    let sample = profile
        .stacks
        .iter()
        .map(|stack| file.sample(stack, &mut resolve))
        .collect();
    let comment = if profile.lost == 0 {
        Vec::new()
    } else {
        let lost = profile.lost;
        vec![file.string(&format!(
            "{lost} samples found no place: less is in use here than in fact"
        ))]
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    protos::Profile {
        sample_type,
        sample,
        period_type,
        period: i64::try_from(profile.bytes_per_sample).unwrap_or(i64::MAX),
        default_sample_type: file.string("inuse_space"),
        comment,
        time_nanos: i64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or_default(),
        string_table: file.strings.names,
        function: file.functions,
        location: file.locations,
        ..protos::Profile::default()
    }
}

#[derive(Default)]
struct File {
    strings: Strings,
    functions: Vec<protos::Function>,
    function_ids: HashMap<i64, u64>,
    locations: Vec<protos::Location>,
    /// By address. None: an address in the allocator.
    location_ids: HashMap<usize, Option<u64>>,
}

#[derive(Default)]
struct Strings {
    names: Vec<String>,
    ids: HashMap<String, i64>,
}

impl File {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(id) = self.strings.ids.get(text) {
            return *id;
        }
        let id = i64::try_from(self.strings.names.len()).unwrap_or_default();
        self.strings.names.push(text.to_owned());
        self.strings.ids.insert(text.to_owned(), id);
        id
    }

    fn value_type(&mut self, ty: &str, unit: &str) -> protos::ValueType {
        protos::ValueType {
            ty: self.string(ty),
            unit: self.string(unit),
        }
    }

    fn sample(
        &mut self,
        stack: &Stack,
        resolve: &mut impl FnMut(usize) -> Vec<Function>,
    ) -> protos::Sample {
        let locations = stack
            .frames
            .iter()
            .map(|frame| self.location(*frame, resolve));
        let locations: Vec<Option<u64>> = locations.collect();
        let is_allocators = |location: &Option<u64>| location.is_none();
        // The allocator is the innermost; it is not what anybody looks for.
        let begin = locations
            .iter()
            .rposition(is_allocators)
            .map_or(0, |last| last + 1);
        let mut location_id: Vec<u64> = locations.into_iter().skip(begin).flatten().collect();
        if location_id.is_empty() {
            let rest = Function {
                name: "[stacks there was no room for]".to_owned(),
                line: 0,
            };
            location_id.push(self.add_location(0, &[rest]));
        }
        let values = [
            stack.allocated_objects,
            stack.allocated_bytes,
            stack.live_objects,
            stack.live_bytes,
        ];
        protos::Sample {
            location_id,
            value: values.map(whole).to_vec(),
            label: Vec::new(),
        }
    }

    fn location(
        &mut self,
        frame: usize,
        resolve: &mut impl FnMut(usize) -> Vec<Function>,
    ) -> Option<u64> {
        if let Some(known) = self.location_ids.get(&frame) {
            return *known;
        }
        let functions = resolve(frame);
        let id = if functions.iter().any(is_allocator) {
            None
        } else {
            Some(self.add_location(frame, &functions))
        };
        self.location_ids.insert(frame, id);
        id
    }

    fn add_location(&mut self, frame: usize, functions: &[Function]) -> u64 {
        let lines = functions.iter().map(|function| protos::Line {
            function_id: self.function(&function.name),
            line: function.line.into(),
        });
        let line = lines.collect();
        let id = self.locations.len() as u64 + 1;
        self.locations.push(protos::Location {
            id,
            address: frame as u64,
            line,
            ..protos::Location::default()
        });
        id
    }

    fn function(&mut self, name: &str) -> u64 {
        let name = self.string(name);
        let next = self.functions.len() as u64 + 1;
        let id = *self.function_ids.entry(name).or_insert(next);
        if id == next {
            self.functions.push(protos::Function {
                id,
                name,
                // Were it the same name, `pprof` would take it for C++ and cut what is in `<>`.
                system_name: 0,
                ..protos::Function::default()
            });
        }
        id
    }
}

/// Whether a function is part of allocating, not a reason for it.
fn is_allocator(function: &Function) -> bool {
    const OURS: [&str; 3] = ["heap::", "<heap::", "backtrace::"];
    const SHIMS: [&str; 3] = ["__rust_alloc", "__rust_alloc_zeroed", "__rust_realloc"];
    let name = function.name.as_str();
    OURS.iter().any(|prefix| name.starts_with(prefix))
        || SHIMS.contains(&name.rsplit("::").next().unwrap_or(name))
}

#[expect(clippy::cast_possible_truncation, reason = "an estimate needs no more")]
fn whole(estimate: f64) -> i64 {
    estimate.round() as i64
}

#[cfg(test)]
#[path = "pprof_file/tests.rs"]
mod tests;
