//! What is wrong with one struct. All of it is told at once: a person who mends one attribute should
//! not learn of the next by compiling again.

/// Findings, collected.
#[derive(Default)]
pub(crate) struct Report {
    found: Option<syn::Error>,
}

impl Report {
    /// Adds one.
    pub(crate) fn add(&mut self, error: syn::Error) {
        match &mut self.found {
            Some(found) => found.combine(error),
            None => self.found = Some(error),
        }
    }

    /// The value of a result, or nothing after adding its error.
    pub(crate) fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        result.map_err(|error| self.add(error)).ok()
    }

    /// Whether nothing was found so far.
    pub(crate) fn is_clean(&self) -> bool {
        self.found.is_none()
    }

    /// All findings as one error.
    pub(crate) fn finish(self) -> syn::Result<()> {
        self.found.map_or(Ok(()), Err)
    }
}
