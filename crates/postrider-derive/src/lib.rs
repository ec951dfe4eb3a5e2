//! `#[derive(Event)]`: writes `postrider::TypedEvent` for a struct.
//!
//! Invariant: what can be judged from the text of the attributes is judged here, when the struct is
//! compiled, and each finding points at the word that caused it. Sizes and characters that come from
//! values are checked by `enqueue`.
//!
//! Use it through the crate `postrider`, whose name stands in the code that is written. There are its examples and
//! tests too, since tests of a crate of macros are built with all below them as a macro is: once more.

mod attribute;
mod expand;
mod fields;
mod name;
mod nearest;
mod report;

use proc_macro::TokenStream;

/// Makes a struct an event: writes `postrider::TypedEvent` for it.
///
/// The struct must be `serde::Serialize`, and `Deserialize` to be read again. All of its fields are
/// the payload, also those that are marked.
///
/// # On the struct
///
/// | Attribute | Meaning |
/// |---|---|
/// | `type = "order.placed"` | required: what happened; parts of `a-z A-Z 0-9 _` with dots between them, at most 255 bytes |
/// | `version = 2` | the version of the struct's shape, from 1; by default 1 |
/// | `aggregate = "order"` | the kind of thing it happened to; by default the first part of the type |
/// | `crate = "path"` | where the crate `postrider` is, if it is not `::postrider` |
///
/// # On its fields
///
/// | Attribute | On | Meaning |
/// |---|---|---|
/// | `id` | `Display` | required, once: which one it happened to |
/// | `key` | `Display` | the ordering key, where it is not the aggregate |
/// | `tenant` | `Display` | the tenant |
/// | `occurred_at` | `Clone + Into<Timestamp>` | when it happened; otherwise it is the moment of `to_event` |
/// | `header = "name"` | `Display` | a header; the name has 1 to 128 of `a-z 0-9 . _ -`, and does not begin with `postrider-` |
///
/// All but `id` may be on an `Option`, which is told by the name of its type; `None` leaves the
/// value out. A field may be several of these.
///
/// Enums and unions are refused: an event has one type and one version. So is everything that the
/// tables do not have, with the nearest name that they do.
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    expand::event(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
