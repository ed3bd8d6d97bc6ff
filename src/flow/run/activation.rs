//! An activation that is carried out, and the engine that does.

use std::sync::Arc;

use crate::flow::inner::Inner;
use crate::flow::live::Live;

/// An activation that is carried out, and the engine that does. Its ends are methods of it: `finish`, `undo`, `command`.
#[derive(Clone, Copy)]
pub(in crate::flow) struct Activation<'a> {
    pub(in crate::flow) engine: &'a Arc<Inner>,
    pub(in crate::flow) live: &'a Arc<Live>,
}
