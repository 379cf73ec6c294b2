//! What is in the kernel's nftables.

use rustix::io::Errno;

use super::chain::{u32_be, u64_be};
use super::set::{read_list, write_list};
use super::{Element, HEADER_LEN, Interval, Set, message, write_header};
use crate::netlink::{attribute, text_of};
use crate::{NetError, Socket};

const NFTA_GEN_ID: u16 = 1;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_TABLE_USERDATA: u16 = 6;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
/// `NFTNL_UDATA_TABLE_COMMENT`, libnftnl's `include/libnftnl/udata.h`
const UDATA_TABLE_COMMENT: u8 = 0;

/// The number that every change to the ruleset makes higher, whoever makes it.
pub fn generation(socket: &Socket) -> Result<u32, NetError> {
    let attempt = "ask for the generation of the nftables ruleset";
    let answer = socket.ask(message::GETGEN, attempt, write_header, |message| {
        let payload = attribute(message.payload.get(HEADER_LEN..)?, NFTA_GEN_ID)?;
        Some(u32::from_be_bytes(payload.try_into().ok()?))
    })?;
    answer.ok_or_else(|| NetError::talk(attempt)(Errno::BADMSG))
}

/// A table of the family `inet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFacts {
    /// Its number, which no other table ever has.
    pub handle: u64,
    /// `NFT_TABLE_F_*`: a dormant one does nothing.
    pub flags: u32,
    /// Empty if it has none.
    pub comment: String,
}

/// What is known about a table; nothing if there is no such table.
pub fn table(socket: &Socket, name: &str) -> Result<Option<TableFacts>, NetError> {
    let answer = socket.ask(
        message::GETTABLE,
        &format!("look for the nftables table inet {name}"),
        |message| {
            write_header(message);
            message.text(NFTA_TABLE_NAME, name);
        },
        |message| {
            let attrs = message.payload.get(HEADER_LEN..)?;
            let words = attribute(attrs, NFTA_TABLE_USERDATA).unwrap_or_default();
            Some(TableFacts {
                handle: u64_be(attribute(attrs, NFTA_TABLE_HANDLE)?)?,
                flags: u32_be(attribute(attrs, NFTA_TABLE_FLAGS)?)?,
                comment: comment_in(words),
            })
        },
    );
    match answer {
        Err(error) if error.is(Errno::NOENT) => Ok(None),
        answer => answer,
    }
}

/// The comment in what `nft` keeps with a table: kind, length and payload of each thing.
fn comment_in(mut userdata: &[u8]) -> String {
    while let [kind, length, rest @ ..] = userdata {
        let length = usize::from(*length);
        let payload = rest.get(..length).unwrap_or_default();
        if *kind == UDATA_TABLE_COMMENT {
            return text_of(payload);
        }
        userdata = rest.get(length..).unwrap_or_default();
    }
    String::new()
}

/// The element of a set or map with this key, if it is there.
///
/// An error that is `NOENT` means that the set itself is missing.
pub fn element(socket: &Socket, set: Set<'_>, key: &[u8]) -> Result<Option<Element>, NetError> {
    let wanted = [Element::member(key.to_vec())];
    let answer = socket.ask(
        message::GETSETELEM,
        &format!("look into {set}"),
        |message| write_list(message, set, &wanted),
        |message| read_list(message.payload).pop(),
    );
    match answer {
        Err(error) if error.is(Errno::NOENT) => {
            // The kernel has the same number for a missing element, set and table.
            find(socket, set)?;
            Ok(None)
        }
        answer => answer,
    }
}

fn find(socket: &Socket, set: Set<'_>) -> Result<(), NetError> {
    socket
        .ask(
            message::GETSET,
            &format!("look for {set}"),
            |message| {
                write_header(message);
                message.text(NFTA_SET_TABLE, set.table);
                message.text(NFTA_SET_NAME, set.name);
            },
            |_| Some(()),
        )
        .map(drop)
}

/// All elements of a set or map, in the kernel's order.
///
/// An error that is `NOENT` means that the set itself is missing.
pub fn elements(socket: &Socket, set: Set<'_>) -> Result<Vec<Element>, NetError> {
    let pieces = socket.dump(
        message::GETSETELEM,
        &format!("list {set}"),
        |message| write_list(message, set, &[]),
        |message| Some(read_list(message.payload)),
    )?;
    Ok(pieces.concat())
}

/// All intervals of a set of flag `interval`, in order.
pub fn intervals(socket: &Socket, set: Set<'_>) -> Result<Vec<Interval>, NetError> {
    Ok(Interval::of_elements(&elements(socket, set)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_found_among_other_things() {
        assert_eq!(comment_in(&[7, 1, 9, 0, 3, b'h', b'i', 0]), "hi");
        assert_eq!(comment_in(&[7, 1, 9]), "");
        assert_eq!(comment_in(&[0, 200, b'h']), "");
        assert_eq!(comment_in(&[]), "");
    }
}
