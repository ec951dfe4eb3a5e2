//! A warning cannot do without its code.
use postrider_core::operate::findings::coded;

fn main() {
    let _ = coded("clock", "apart", "set it", None);
}
