//! The cases of `inbox_suite!`.

use super::InboxHarness;

/// A fresh one starts.
pub async fn it_starts<H: InboxHarness>() {
    let _ = H::start().await;
}

/// Applies the suite to a harness: `inbox_suite!(Harness);` makes a module `inbox_suite` with one
/// test per case.
#[macro_export]
macro_rules! inbox_suite {
    ($harness:ty) => {
        mod inbox_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!($harness, inbox, it_starts,);
        }
    };
}
