//! The place in a stream: when it was looked last, and what was open then. A client holds it as an opaque text. It is sealed with
//! the tenant's key, so it works in every process of a service, and one that was forged, or belongs to another stream, is refused.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use super::look::Subject;
use crate::clock::Timestamp;
use crate::id::QuestionId;
use crate::payload::DigestKey;

/// The length of the seal, in bytes.
const SEAL: usize = 16;
/// The greatest number of open questions that a cursor names.
const OPEN: usize = 64;

/// A place in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The instant of the look.
    pub(super) at: Timestamp,
    /// A digest of the calls that were seen.
    pub(super) calls: u64,
    /// The questions that were open, so that the stream can tell which of them were answered since.
    pub(super) open: Vec<QuestionId>,
}

impl Cursor {
    pub(super) fn text(&self, subject: Subject, key: &DigestKey) -> String {
        let mut bytes = self.at.0.to_be_bytes().to_vec();
        bytes.extend(self.calls.to_be_bytes());
        bytes.extend(self.open.iter().take(OPEN).flat_map(|id| id.0.to_be_bytes()));
        let mut sealed = seal(subject, key, &bytes).to_vec();
        sealed.extend(bytes);
        URL_SAFE_NO_PAD.encode(sealed)
    }

    /// Reads a cursor. `None` if it is none of this stream.
    pub(super) fn read(text: &str, subject: Subject, key: &DigestKey) -> Option<Self> {
        let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (sealed_by, bytes) = sealed.split_at_checked(SEAL)?;
        if !bool::from(seal(subject, key, bytes).ct_eq(sealed_by)) {
            return None;
        }
        let mut numbers = bytes.chunks_exact(8).map(|part| part.try_into().map(i64::from_be_bytes));
        let mut next = || numbers.next()?.ok();
        let (at, calls) = (Timestamp(next()?), next()?.cast_unsigned());
        let open = std::iter::from_fn(next).map(QuestionId).collect();
        Some(Self { at, calls, open })
    }
}

fn seal(subject: Subject, key: &DigestKey, bytes: &[u8]) -> [u8; SEAL] {
    let mut sealed = format!("events of {subject}: ").into_bytes();
    sealed.extend(bytes);
    let digest = key.digest(&sealed);
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    #[test]
    fn a_cursor_is_read_by_its_own_stream_and_by_no_other() {
        let (key, other) = (DigestKey::new([1; 32]), DigestKey::new([2; 32]));
        let run = Subject::Run(RunId(7));
        let cursor = Cursor { at: Timestamp(5), calls: u64::MAX, open: vec![QuestionId(1), QuestionId(-2)] };
        let text = cursor.text(run, &key);
        assert_eq!(Cursor::read(&text, run, &key), Some(cursor));
        assert_eq!(Cursor::read(&text, Subject::Tenant, &key), None);
        assert_eq!(Cursor::read(&text, Subject::Run(RunId(8)), &key), None);
        assert_eq!(Cursor::read(&text, run, &other), None);
        for forged in ["", "-", "AAAA", "\u{e9}", &"A".repeat(5000), &text[1..], &text[..text.len() - 1]] {
            assert_eq!(Cursor::read(forged, run, &key), None, "{forged}");
        }
    }

    #[test]
    fn a_cursor_has_a_maximum_length() {
        let open = (0..1000).map(QuestionId).collect();
        let text =
            Cursor { at: Timestamp(5), calls: 0, open }.text(Subject::Tenant, &DigestKey::new([1; 32]));
        assert!(text.len() < 800, "{}", text.len());
    }
}
