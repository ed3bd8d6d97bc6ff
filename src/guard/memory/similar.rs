//! The similarity of two texts with the same facts.

use std::collections::HashMap;

use futures_util::future::BoxFuture;

use super::facts::Text;
use super::normal::is_unspaced;

/// A measure of the similarity of texts. It is called only for texts with the same numbers, identifiers, dates and
/// negations.
///
/// ```
/// use counterfoil::guard::memory::Similarity;
/// use futures_util::future::BoxFuture;
///
/// /// By the vectors of a model, which a real one keeps in a cache of its own.
/// #[derive(Debug)]
/// struct Embeddings;
///
/// impl Embeddings {
///     async fn vector(&self, text: &str) -> [f64; 2] {
///         [text.len() as f64, 1.0] // ask the model …
///     }
/// }
///
/// impl Similarity for Embeddings {
///     fn scores<'a>(&'a self, content: &'a str, others: &'a [String]) -> BoxFuture<'a, Vec<f64>> {
///         Box::pin(async move {
///             let [x, y] = self.vector(content).await;
///             let mut scores = Vec::new();
///             for other in others {
///                 let [u, v] = self.vector(other).await;
///                 scores.push((x * u + y * v) / (x.hypot(y) * u.hypot(v)));
///             }
///             scores
///         })
///     }
/// }
/// ```
pub trait Similarity: Send + Sync + std::fmt::Debug {
    /// The similarity of the content to each of the others, from 0 to 1, in their order. Use 0 for a similarity that
    /// cannot be computed: that memory is then not suggested. May be called again for the same write, if a concurrent
    /// write was committed first.
    fn scores<'a>(&'a self, content: &'a str, others: &'a [String]) -> BoxFuture<'a, Vec<f64>>;
}

// Checks that the trait is object-safe, because a measure is passed as `dyn`.
const _: Option<&dyn Similarity> = None;

/// The default measure: the lower of two scores, the common letter sequences of the normal forms and their common
/// words in order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lexical;

impl Similarity for Lexical {
    fn scores<'a>(&'a self, content: &'a str, others: &'a [String]) -> BoxFuture<'a, Vec<f64>> {
        let one = Text::of(content);
        let scores = others.iter().map(|other| score(&one, &Text::of(other))).collect();
        Box::pin(std::future::ready(scores))
    }
}

/// The maximum number of words that are compared in order.
const WORDS: usize = 128;

fn score(one: &Text, other: &Text) -> f64 {
    let unspaced = one.normal.chars().filter(|c| is_unspaced(*c)).count() * 2 > one.normal.chars().count();
    let letters = dice(&one.normal, &other.normal, if unspaced { 2 } else { 3 });
    if unspaced {
        return letters; // in a script without spaces the tokens are not words
    }
    letters.min(in_order(&one.tokens, &other.tokens))
}

/// The fraction of their sequences of `n` letters that two texts have in common.
pub(super) fn dice(one: &str, other: &str, n: usize) -> f64 {
    let (one, other) = (grams(one, n), grams(other, n));
    let all: usize = one.values().chain(other.values()).sum();
    let common: usize = one.iter().map(|(gram, count)| count.min(other.get(gram).unwrap_or(&0))).sum();
    ratio(2 * common, all)
}

fn grams(text: &str, n: usize) -> HashMap<Vec<char>, usize> {
    let padded: Vec<char> = std::iter::once(' ').chain(text.chars()).chain([' ']).collect();
    let mut grams = HashMap::new();
    for gram in padded.windows(n) {
        *grams.entry(gram.to_vec()).or_default() += 1;
    }
    grams
}

/// The fraction of the words that both texts have in the same order.
fn in_order(one: &[String], other: &[String]) -> f64 {
    let (one, other) = (&one[..one.len().min(WORDS)], &other[..other.len().min(WORDS)]);
    // The length of the longest common subsequence, computed row by row.
    let mut row = vec![0; other.len() + 1];
    for word in one {
        let mut before = 0;
        for (i, against) in other.iter().enumerate() {
            let above = row[i + 1];
            row[i + 1] = if word == against { before + 1 } else { above.max(row[i]) };
            before = above;
        }
    }
    ratio(2 * row[other.len()], one.len() + other.len())
}

#[allow(clippy::cast_precision_loss, reason = "counts of letters and words")]
fn ratio(part: usize, whole: usize) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
