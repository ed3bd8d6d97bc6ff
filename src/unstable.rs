//! The border of the stable API: names behind it are public only with the feature `unstable-core`.

/// Re-exports that are public with the feature `unstable-core`, and inside of the crate without it.
macro_rules! unstable_core {
    ($(pub use $head:tt $(:: $tail:tt)+;)+) => {$(
        #[cfg(feature = "unstable-core")]
        #[cfg_attr(docsrs, doc(cfg(feature = "unstable-core")))]
        pub use $head $(:: $tail)+;
        #[cfg(not(feature = "unstable-core"))]
        #[allow(unused_imports, reason = "inside of the crate many are used by their full path")]
        pub(crate) use $head $(:: $tail)+;
    )+};
}
