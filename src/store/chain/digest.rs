//! Digests of rows as they are stored.

use std::slice::Iter;

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::payload::DigestKey;
use crate::store::cell::Declared;
use crate::store::row::{Given, Put};
use crate::store::table::Column;

/// The length of a digest, in bytes. Half of SHA-256's output is enough by RFC 2104, section 5.
pub(super) const SHORT: usize = 16;

/// The first half of an HMAC.
pub(super) fn short(mac: Hmac<Sha256>) -> [u8; SHORT] {
    let whole = mac.finalize().into_bytes();
    std::array::from_fn(|place| whole[place])
}

/// Takes digests under the salt of a ledger, so that a digest that outlives its row does not tell by itself what the row
/// said.
#[derive(Clone)]
pub(super) struct Digests(Hmac<Sha256>);

impl Digests {
    pub(super) fn new(salt: &DigestKey) -> Self {
        Self(salt.mac())
    }

    /// The digest of all values of a row, each with the name of its column. A column without a value is left out: a column
    /// that a later version adds does not change the digests of earlier rows.
    pub(super) fn row<R: Declared>(&self, row: &R) -> [u8; SHORT] {
        let mut mac = self.0.clone();
        mac.update(R::TABLE.name.as_bytes());
        let mut values = Values { mac, columns: R::TABLE.columns.iter() };
        row.put(&mut values);
        short(values.mac)
    }

    /// A number for a place that has a longer name.
    pub(super) fn place(&self, names: &[&str]) -> i64 {
        let mut mac = self.0.clone();
        for name in names {
            mac.update(&(name.len() as u64).to_be_bytes());
            mac.update(name.as_bytes());
        }
        let digest = short(mac);
        i64::from_be_bytes(std::array::from_fn(|place| digest[place]))
    }
}

/// The values of a row on their way into its digest.
struct Values {
    mac: Hmac<Sha256>,
    columns: Iter<'static, Column>,
}

impl Values {
    fn bytes(&mut self, kind: u8, bytes: &[u8]) {
        self.mac.update(&[kind]);
        self.mac.update(&(bytes.len() as u64).to_be_bytes());
        self.mac.update(bytes);
    }
}

impl Put for Values {
    fn give(&mut self, value: Given<'_>) {
        let name = self.columns.next().map_or("", |column| column.name);
        if matches!(value, Given::Null(_)) {
            return;
        }
        self.bytes(0, name.as_bytes());
        match value {
            Given::Text(text) => self.bytes(1, text.as_bytes()),
            Given::Shared(text) => self.bytes(1, text.as_bytes()),
            Given::Bytes(bytes) => self.bytes(2, bytes),
            Given::Owned(bytes) => self.bytes(2, &bytes),
            Given::Number(number) => self.bytes(3, &number.to_be_bytes()),
            Given::Flag(flag) => self.bytes(4, &[u8::from(flag)]),
            Given::Null(_) => {}
            Given::Texts(_) | Given::Numbers(_) => {
                unreachable!("no row holds a list: it is an argument of a query")
            }
        }
    }
}
