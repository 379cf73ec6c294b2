//! Sets and maps, and their elements.

use std::fmt;

use rustix::io::Errno;

use super::{Interval, message, write_header};
use crate::netlink::{Writer, attribute, attributes};
use crate::{NetError, Socket};

const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_TABLE: u16 = 1;
const NFTA_SET_NAME: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;

/// A set or a map in a table of the family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// Name of the table.
    pub table: &'a str,
    /// Name of the set.
    pub name: &'a str,
}

impl fmt::Display for Set<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "set {} of nftables table inet {}",
            self.name, self.table
        )
    }
}

/// An element of a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Key, in network byte order.
    pub key: Vec<u8>,
    /// Value, in maps.
    pub value: Option<Vec<u8>>,
    /// Flag interval end: the key is the one after the last of an interval.
    pub ends_interval: bool,
}

impl Element {
    /// A member of a set.
    pub fn member(key: Vec<u8>) -> Self {
        Self {
            key,
            value: None,
            ends_interval: false,
        }
    }

    /// An entry of a map.
    pub fn entry(key: Vec<u8>, value: Vec<u8>) -> Self {
        Self {
            value: Some(value),
            ..Self::member(key)
        }
    }

    fn write(&self, elements: &mut Writer<'_>) {
        elements.nest(NFTA_LIST_ELEM, |element| {
            element.nest(NFTA_SET_ELEM_KEY, |key| {
                key.attribute(NFTA_DATA_VALUE, &self.key);
            });
            if let Some(value) = &self.value {
                element.nest(NFTA_SET_ELEM_DATA, |data| {
                    data.attribute(NFTA_DATA_VALUE, value);
                });
            }
            if self.ends_interval {
                element.u32_be(NFTA_SET_ELEM_FLAGS, NFT_SET_ELEM_INTERVAL_END);
            }
        });
    }

    fn read(attrs: &[u8]) -> Option<Self> {
        let data = |kind| {
            let nested = attribute(attrs, kind)?;
            Some(attribute(nested, NFTA_DATA_VALUE)?.to_vec())
        };
        let flags = attribute(attrs, NFTA_SET_ELEM_FLAGS)
            .and_then(|payload| payload.try_into().ok())
            .map_or(0, u32::from_be_bytes);
        Some(Self {
            key: data(NFTA_SET_ELEM_KEY)?,
            value: data(NFTA_SET_ELEM_DATA),
            ends_interval: flags & NFT_SET_ELEM_INTERVAL_END != 0,
        })
    }
}

/// Writes the set and elements of it.
pub(super) fn write_list(message: &mut Writer<'_>, set: Set<'_>, elements: &[Element]) {
    write_header(message);
    message.text(NFTA_SET_ELEM_LIST_TABLE, set.table);
    message.text(NFTA_SET_ELEM_LIST_SET, set.name);
    if !elements.is_empty() {
        message.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |list| {
            for element in elements {
                element.write(list);
            }
        });
    }
}

/// Reads the elements in a payload.
pub(super) fn read_list(payload: &[u8]) -> Vec<Element> {
    let attrs = payload.get(super::HEADER_LEN..).unwrap_or_default();
    let list = attribute(attrs, NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
    attributes(list)
        .filter_map(|(_, element)| Element::read(element))
        .collect()
}

/// The element of a set or map with this key, if it exists; `ENOENT` if the set does not.
pub fn element(socket: &Socket, set: Set<'_>, key: &[u8]) -> Result<Option<Element>, NetError> {
    let wanted = [Element::member(key.to_vec())];
    let reply = socket.get(
        message::GETSETELEM,
        &format!("get element of {set}"),
        |message| write_list(message, set, &wanted),
        |message| read_list(message.payload).pop(),
    );
    match reply {
        Err(error) if error.is(Errno::NOENT) => {
            // ENOENT stands for a missing element, set or table.
            ensure_exists(socket, set)?;
            Ok(None)
        }
        reply => reply,
    }
}

fn ensure_exists(socket: &Socket, set: Set<'_>) -> Result<(), NetError> {
    socket
        .get(
            message::GETSET,
            &format!("get {set}"),
            |message| {
                write_header(message);
                message.text(NFTA_SET_TABLE, set.table);
                message.text(NFTA_SET_NAME, set.name);
            },
            |_| Some(()),
        )
        .map(drop)
}

/// All elements of a set or map, in no order; `ENOENT` if the set does not exist.
pub fn elements(socket: &Socket, set: Set<'_>) -> Result<Vec<Element>, NetError> {
    let pieces = socket.dump(
        message::GETSETELEM,
        &format!("list {set}"),
        |message| write_list(message, set, &[]),
        |message| Some(read_list(message.payload)),
    )?;
    Ok(pieces.concat())
}

/// All intervals of a set with the flag `interval`, in order.
pub fn intervals(socket: &Socket, set: Set<'_>) -> Result<Vec<Interval>, NetError> {
    Ok(Interval::of_elements(&elements(socket, set)?))
}

/// A concatenation: each field is padded to a multiple of four bytes.
pub fn concatenate(fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(24);
    for field in fields {
        bytes.extend_from_slice(field);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Batch, messages};

    #[test]
    fn fields_of_a_key_are_padded() {
        let key = concatenate(&[&[10, 0, 0, 1], &[6], &80u16.to_be_bytes()]);
        assert_eq!(key, [10, 0, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0]);
        assert!(concatenate(&[]).is_empty());
    }

    #[test]
    fn elements_round_trip() {
        let set = Set {
            table: "t",
            name: "s",
        };
        let mut elements = vec![
            Element::member(vec![10, 0, 0, 0]),
            Element::entry(vec![6, 0, 0, 0], vec![1, 2, 3, 4, 5, 6, 7, 8]),
        ];
        elements.push(Element {
            ends_interval: true,
            ..Element::member(vec![11, 0, 0, 0])
        });
        let mut batch = Batch::new();
        batch.add(0, 0, "test", |message| write_list(message, set, &elements));
        let bytes = batch.with_ack_on(usize::MAX);
        let message = messages(bytes).next().unwrap();
        assert_eq!(read_list(message.payload), elements);
    }

    #[test]
    fn malformed_payloads_have_no_elements() {
        for payload in [&[][..], &[0; 3], &[0; 4], &[1, 0, 0, 0, 255, 255, 3, 128]] {
            assert_eq!(read_list(payload), []);
        }
    }
}
