//! The cases of `source_suite!`.

use super::StoreHarness;

/// A fresh one starts.
pub async fn it_starts<H: StoreHarness>() {
    let _ = H::start().await;
}

/// Applies the suite to a harness: `source_suite!(Harness);` makes a module `source_suite` with one
/// test per case.
#[macro_export]
macro_rules! source_suite {
    ($harness:ty) => {
        mod source_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!($harness, source, it_starts,);
        }
    };
}
