//! Streams of what changes: a run, or what a tenant's people wait for. They are made by looking: a store tells that something was
//! written, and not what. A stream that breaks off is resumed behind a cursor.

mod cursor;
mod look;
mod stream;

pub(super) use self::look::Subject;
pub(super) use self::stream::{Streams, Watch};
