//! Elements of sets and maps, as they are written and read.

use crate::netlink::{Writer, attribute, attributes};
use std::fmt;

const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_DATA: u16 = 2;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_DATA_VALUE: u16 = 1;
const NFT_SET_ELEM_INTERVAL_END: u32 = 1;

/// A set or a map in a table of the family `inet`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Set<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The set's name.
    pub name: &'a str,
}

impl fmt::Display for Set<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} of the nftables table inet {}",
            self.name, self.table
        )
    }
}

/// An element of a set or a map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// What is looked up, in the network's byte order.
    pub key: Vec<u8>,
    /// What is found, in maps.
    pub value: Option<Vec<u8>>,
    /// Whether this is not a member, but the first one after an interval of members.
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

/// Writes which set is meant, and elements of it.
pub(super) fn write_list(message: &mut Writer<'_>, set: Set<'_>, elements: &[Element]) {
    super::write_header(message);
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

/// The elements in a message's payload.
pub(super) fn read_list(payload: &[u8]) -> Vec<Element> {
    let attrs = payload.get(super::HEADER_LEN..).unwrap_or_default();
    let list = attribute(attrs, NFTA_SET_ELEM_LIST_ELEMENTS).unwrap_or_default();
    attributes(list)
        .filter_map(|(_, element)| Element::read(element))
        .collect()
}

/// The key or value that several fields make: each begins at a multiple of four bytes.
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
        assert_eq!(concatenate(&[]), []);
    }

    #[test]
    fn what_is_written_is_read_back() {
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
        let bytes = batch.acknowledged_by(usize::MAX);
        let message = messages(bytes).next().unwrap();
        assert_eq!(read_list(message.payload), elements);
    }

    #[test]
    fn damaged_messages_are_read_as_far_as_possible() {
        for payload in [&[][..], &[0; 3], &[0; 4], &[1, 0, 0, 0, 255, 255, 3, 128]] {
            assert_eq!(read_list(payload), []);
        }
    }
}
