//! The cases of `broker_suite!`.

use super::BrokerHarness;

/// A fresh one starts.
pub async fn it_starts<H: BrokerHarness>() {
    let _ = H::start().await;
}

/// Applies the suite to a harness: `broker_suite!(Harness);` makes a module `broker_suite` with one
/// test per case.
#[macro_export]
macro_rules! broker_suite {
    ($harness:ty) => {
        mod broker_suite {
            #[allow(unused_imports)]
            use super::*;
            $crate::__cases!($harness, broker, it_starts,);
        }
    };
}
