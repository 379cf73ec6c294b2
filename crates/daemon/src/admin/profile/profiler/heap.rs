//! Heap profiles: who allocated what is in use, of what was allocated since sampling began.

use std::num::NonZeroUsize;

use pprof::protos::Message;
use tokio::task::spawn_blocking;

pub(in super::super) use heap::Sampling;

use super::pprof_file::{Function, encode};
use super::{ProfilerError, trouble};

/// The mean distance of samples. Go and jemalloc have 512 KiB, which is all that an idle daemon has
/// allocated; at this one, the book has room for more than a hundred MiB.
const BYTES_PER_SAMPLE: NonZeroUsize = NonZeroUsize::new(32 << 10).unwrap();

/// Begins to sample.
pub(in super::super) fn sample() -> Sampling {
    heap::sample(BYTES_PER_SAMPLE)
}

/// What has been sampled so far, as `pprof` reads it.
pub(in super::super) async fn profile() -> Result<Vec<u8>, ProfilerError> {
    spawn_blocking(|| heap::unseen(report))
        .await
        .map_err(trouble)?
}

fn report() -> Result<Vec<u8>, ProfilerError> {
    // Nobody samples if it was switched off this moment.
    let profile = heap::snapshot().unwrap_or_default();
    let mut names_known = 0_usize;
    let file = encode(&profile, |frame| {
        let functions = resolve(frame);
        names_known += functions.len();
        functions
    });
    // Names were read from the program's file; megabytes of them are kept otherwise.
    backtrace::clear_symbol_cache();
    if !profile.stacks.is_empty() && names_known == 0 {
        return Err(ProfilerError::NoSymbols);
    }
    Ok(file.encode_to_vec())
}

/// The function that an address is in, after those that were inlined into it.
fn resolve(frame: usize) -> Vec<Function> {
    let mut functions = Vec::new();
    backtrace::resolve(std::ptr::without_provenance_mut(frame), |symbol| {
        let Some(name) = symbol.name() else { return };
        functions.push(Function {
            // Without the hash that makes it unique.
            name: format!("{name:#}"),
            line: symbol.lineno().unwrap_or_default(),
        });
    });
    functions
}
