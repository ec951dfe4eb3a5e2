//! The cases of `store_suite!`.

use super::StoreHarness;

/// A fresh one starts.
pub async fn it_starts<H: StoreHarness>() {
    let _ = H::start().await;
}

/// Applies the suite to a harness: `store_suite!(Harness);` makes a module `store_suite` with one
/// test per case.
#[macro_export]
macro_rules! store_suite {
    ($harness:ty) => {
        mod store_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!($harness, store, it_starts,);
        }
    };
}
