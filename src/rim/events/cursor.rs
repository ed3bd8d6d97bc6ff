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
/// The greatest number of open questions that a cursor names. A look reads as many. More would not fit into the header
/// in which a client sends the cursor.
pub(super) const OPEN: usize = 256;

/// A place in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cursor {
    /// The instant of the look.
    pub(super) at: Timestamp,
    /// A digest of the calls that were seen.
    pub(super) calls: u64,
    /// A digest of the reviews that were seen.
    pub(super) reviews: u64,
    /// True if `open` has all questions that were open. Otherwise one of the others may have been answered since, and nothing
    /// here tells which.
    pub(super) is_whole: bool,
    /// The questions that were open, so that the stream can tell which of them were answered since.
    pub(super) open: Vec<QuestionId>,
}

impl Cursor {
    pub(super) fn text(&self, subject: Subject, key: &DigestKey) -> String {
        let mut bytes = self.at.0.to_be_bytes().to_vec();
        bytes.extend(self.calls.to_be_bytes());
        bytes.extend(self.reviews.to_be_bytes());
        bytes.extend(i64::from(self.is_whole && self.open.len() <= OPEN).to_be_bytes());
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
        let (reviews, is_whole) = (next()?.cast_unsigned(), next()? == 1);
        let open = std::iter::from_fn(next).map(QuestionId).collect();
        Some(Self { at, calls, reviews, is_whole, open })
    }
}

fn seal(subject: Subject, key: &DigestKey, bytes: &[u8]) -> [u8; SEAL] {
    // The number is that of the form: a cursor of another form is refused, and not read as what it is not.
    let mut sealed = format!("events 2 of {subject}: ").into_bytes();
    sealed.extend(bytes);
    let digest = key.digest(&sealed);
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::RunId;

    fn of(open: Vec<QuestionId>) -> Cursor {
        Cursor { at: Timestamp(5), calls: u64::MAX, reviews: 7, is_whole: true, open }
    }

    #[test]
    fn a_cursor_is_read_by_its_own_stream_and_by_no_other() {
        let (key, other) = (DigestKey::new([1; 32]), DigestKey::new([2; 32]));
        let run = Subject::Run(RunId(7));
        let cursor = of(vec![QuestionId(1), QuestionId(-2)]);
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
    fn a_cursor_has_a_maximum_length_and_says_that_it_does_not_name_all() {
        let key = DigestKey::new([1; 32]);
        for (open, is_whole) in [(OPEN, true), (1000, false)] {
            let ids: Vec<_> = (0_i64..).map(QuestionId).take(open).collect();
            let text = of(ids.clone()).text(Subject::Tenant, &key);
            assert!(text.len() < 3000, "{}", text.len());
            let read = Cursor::read(&text, Subject::Tenant, &key).unwrap();
            assert_eq!((read.is_whole, read.open.as_slice()), (is_whole, &ids[..OPEN]));
        }
    }
}
