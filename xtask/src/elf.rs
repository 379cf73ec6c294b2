//! Just enough of ELF to tell whether a program needs anything else to start.
//!
//! Names and numbers: <https://gabi.xinuos.com/elf/07-pheader.html> and `08-dynamic.html`.

use std::ops::Range;

use anyhow::{Context, Result, bail};

const PT_LOAD: u64 = 1;
const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;

/// Fails with the reason if a program has an interpreter or needs a shared library.
///
/// A static program may well have a dynamic section: a position-independent one relocates
/// itself.
pub(crate) fn check_static(image: &[u8]) -> Result<()> {
    // EI_CLASS = ELFCLASS64, EI_DATA = ELFDATA2LSB: every target that we build here.
    if image.get(..6) != Some(b"\x7fELF\x02\x01") {
        bail!("it is no 64-bit little-endian ELF file");
    }
    let offset = field(image, 32..40)?; // e_phoff
    let size = field(image, 54..56)?; // e_phentsize
    let count = field(image, 56..58)?; // e_phnum
    let mut loads = false;
    for nth in 0..count {
        let header = part(image, offset + nth * size, size)?;
        match field(header, 0..4)? {
            PT_LOAD => loads = true,
            PT_INTERP => bail!("it asks for an interpreter (PT_INTERP)"),
            PT_DYNAMIC => {
                let (offset, size) = (field(header, 8..16)?, field(header, 32..40)?);
                check_dynamic(part(image, offset, size)?)?;
            }
            _ => {}
        }
    }
    if !loads {
        bail!("it has no segment to load: it is no program");
    }
    Ok(())
}

fn check_dynamic(section: &[u8]) -> Result<()> {
    for entry in section.chunks_exact(16) {
        match field(entry, 0..8)? {
            DT_NULL => break,
            DT_NEEDED => bail!("it needs a shared library (DT_NEEDED)"),
            _ => {}
        }
    }
    Ok(())
}

fn part(image: &[u8], offset: u64, size: u64) -> Result<&[u8]> {
    let start = usize::try_from(offset)?;
    let end = start
        .checked_add(usize::try_from(size)?)
        .context("an offset overflows")?;
    image.get(start..end).context("it is cut short")
}

/// A little-endian number of up to eight bytes.
fn field(bytes: &[u8], at: Range<usize>) -> Result<u64> {
    let bytes = bytes.get(at).context("it is cut short")?;
    Ok(bytes
        .iter()
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of headers only: each segment's type, and the tags of its dynamic section.
    fn image(segments: &[(u64, &[u64])]) -> Vec<u8> {
        let mut file = vec![0; 64 + segments.len() * 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(segments.len()).unwrap();
        for (nth, (kind, tags)) in segments.iter().enumerate() {
            let (at, start) = (64 + nth * 56, file.len());
            file[at..at + 8].copy_from_slice(&kind.to_le_bytes());
            file[at + 8..at + 16].copy_from_slice(&(start as u64).to_le_bytes());
            file[at + 32..at + 40].copy_from_slice(&(tags.len() as u64 * 16).to_le_bytes());
            for tag in *tags {
                file.extend([tag.to_le_bytes(), [0xff; 8]].concat());
            }
        }
        file
    }

    #[test]
    fn a_program_that_only_loads_is_static() {
        check_static(&image(&[(PT_LOAD, &[])])).unwrap();
    }

    #[test]
    fn a_program_that_relocates_itself_is_static() {
        // What lies behind DT_NULL is padding.
        check_static(&image(&[
            (PT_LOAD, &[]),
            (PT_DYNAMIC, &[7, DT_NULL, DT_NEEDED]),
        ]))
        .unwrap();
    }

    #[test]
    fn an_interpreter_is_refused() {
        let error = check_static(&image(&[(PT_LOAD, &[]), (PT_INTERP, &[])])).unwrap_err();
        assert!(error.to_string().contains("PT_INTERP"), "{error}");
    }

    #[test]
    fn a_shared_library_is_refused() {
        let dynamic = image(&[(PT_LOAD, &[]), (PT_DYNAMIC, &[7, DT_NEEDED, DT_NULL])]);
        let error = check_static(&dynamic).unwrap_err();
        assert!(error.to_string().contains("DT_NEEDED"), "{error}");
    }

    #[test]
    fn what_is_no_program_is_refused_without_a_panic() {
        let whole = image(&[(PT_LOAD, &[]), (PT_DYNAMIC, &[DT_NULL])]);
        for length in 0..whole.len() {
            assert!(check_static(&whole[..length]).is_err(), "cut at {length}");
        }
        assert!(check_static(b"#!/bin/sh\n").is_err());
        assert!(check_static(&image(&[])).is_err());
    }
}
