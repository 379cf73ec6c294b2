//! Tables, and the generation of the ruleset.

use rustix::io::Errno;

use super::chain::{u32_be, u64_be};
use super::{HEADER_LEN, message, write_header};
use crate::netlink::{attribute, text_of};
use crate::{NetError, Socket};

const NFTA_GEN_ID: u16 = 1;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_TABLE_FLAGS: u16 = 2;
const NFTA_TABLE_HANDLE: u16 = 4;
const NFTA_TABLE_USERDATA: u16 = 6;
/// `NFTNL_UDATA_TABLE_COMMENT`, libnftnl's `include/libnftnl/udata.h`
const UDATA_TABLE_COMMENT: u8 = 0;

/// The generation of the ruleset, which every change increments.
pub fn generation(socket: &Socket) -> Result<u32, NetError> {
    let attempt = "get generation of the nftables ruleset";
    let reply = socket.get(message::GETGEN, attempt, write_header, |message| {
        let payload = attribute(message.payload.get(HEADER_LEN..)?, NFTA_GEN_ID)?;
        Some(u32::from_be_bytes(payload.try_into().ok()?))
    })?;
    reply.ok_or_else(|| NetError::io(attempt)(Errno::BADMSG))
}

/// A table of the family `inet`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableInfo {
    /// Handle; the kernel never uses it again.
    pub handle: u64,
    /// `NFT_TABLE_F_*`
    pub flags: u32,
    /// Comment, or empty.
    pub comment: String,
}

/// A table of the family `inet`, if it exists.
pub fn table(socket: &Socket, name: &str) -> Result<Option<TableInfo>, NetError> {
    let reply = socket.get(
        message::GETTABLE,
        &format!("get nftables table inet {name}"),
        |message| {
            write_header(message);
            message.text(NFTA_TABLE_NAME, name);
        },
        |message| {
            let attrs = message.payload.get(HEADER_LEN..)?;
            let userdata = attribute(attrs, NFTA_TABLE_USERDATA).unwrap_or_default();
            Some(TableInfo {
                handle: u64_be(attribute(attrs, NFTA_TABLE_HANDLE)?)?,
                flags: u32_be(attribute(attrs, NFTA_TABLE_FLAGS)?)?,
                comment: comment_in(userdata),
            })
        },
    );
    match reply {
        Err(error) if error.is(Errno::NOENT) => Ok(None),
        reply => reply,
    }
}

/// The comment in the user data of a table: kind, length and payload of each entry.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_is_found_among_other_entries() {
        assert_eq!(comment_in(&[7, 1, 9, 0, 3, b'h', b'i', 0]), "hi");
        assert_eq!(comment_in(&[7, 1, 9]), "");
        assert_eq!(comment_in(&[0, 200, b'h']), "");
        assert_eq!(comment_in(&[]), "");
    }
}
