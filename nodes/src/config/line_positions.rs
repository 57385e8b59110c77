//! The line of each value in a configuration file.

use std::{path::Path, sync::Arc};

use super::{error::ConfigError, tree::ValueOrigin};

/// Turns byte offsets of one text into places.
pub(super) struct LinePositions<'a> {
    file: Arc<Path>,
    text: &'a str,
}

impl<'a> LinePositions<'a> {
    pub(super) fn new(file: &Path, text: &'a str) -> Self {
        Self { file: Arc::from(file), text }
    }

    pub(super) fn at(&self, offset: usize) -> ValueOrigin {
        let before = self.text.get(..offset).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        ValueOrigin::File { file: Arc::clone(&self.file), line, column }
    }

    pub(super) fn error(&self, offset: usize, what: String, hint: &str) -> ConfigError {
        ConfigError::new("", self.at(offset), what, hint)
    }
}
