//! `#[event(…)]` on the struct, and what attributes on structs and fields share.
//!
//! Invariant: a [`Container`] has a type, a version, and an aggregate that a store takes.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, DeriveInput, Error, LitInt, LitStr, Path, Token};

use crate::name::{check_aggregate, check_type};
use crate::nearest::nearest;
use crate::report::Report;

/// What may stand on the struct.
const ON_STRUCT: [&str; 4] = ["type", "version", "aggregate", "crate"];
/// What may stand on a field.
const ON_FIELD: [&str; 5] = ["id", "key", "tenant", "occurred_at", "header"];

/// What the attributes of the struct say.
pub(crate) struct Container {
    pub(crate) event_type: String,
    pub(crate) version: u32,
    pub(crate) aggregate: String,
    /// Where the crate `postrider` is.
    pub(crate) root: Path,
}

#[derive(Default)]
struct Given {
    event_type: Option<LitStr>,
    version: Option<u32>,
    aggregate: Option<LitStr>,
    root: Option<Path>,
}

/// Where an attribute stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Struct,
    Field,
}

impl Container {
    /// Reads the attributes of a struct; `None` after reporting what is wrong.
    pub(crate) fn read(input: &DeriveInput, report: &mut Report) -> Option<Container> {
        let mut given = Given::default();
        let mut clean = true;
        for attribute in of_event(&input.attrs) {
            let read = attribute.parse_nested_meta(|meta| given.read(&meta, report));
            clean &= report.keep(read).is_some();
        }
        let Some(event_type) = given.event_type else {
            // After another finding it may only have been misspelt.
            if clean {
                let missing = "`#[event(type = \"…\")]` is missing: say what happened, like \
                               `order.placed`";
                report.add(Error::new_spanned(&input.ident, missing));
            }
            return None;
        };
        let event_type = event_type.value();
        let first = event_type.split('.').next().unwrap_or_default();
        let aggregate = given.aggregate.map_or_else(|| first.to_owned(), |text| text.value());
        Some(Container {
            aggregate,
            version: given.version.unwrap_or(1),
            root: given.root.unwrap_or_else(|| syn::parse_quote!(::postrider)),
            event_type,
        })
    }
}

impl Given {
    /// Reads one entry. Bad values are reported and reading goes on behind them; an error is returned
    /// where the rest cannot be made out.
    fn read(&mut self, meta: &ParseNestedMeta<'_>, report: &mut Report) -> syn::Result<()> {
        if meta.path.is_ident("type") {
            let text = set(&mut self.event_type, meta, text_of)?;
            report.keep(judge(text, check_type));
        } else if meta.path.is_ident("version") {
            set(&mut self.version, meta, |meta| version_of(meta, report))?;
        } else if meta.path.is_ident("aggregate") {
            let text = set(&mut self.aggregate, meta, text_of)?;
            report.keep(judge(text, check_aggregate));
        } else if meta.path.is_ident("crate") {
            set(&mut self.root, meta, |meta| text_of(meta)?.parse_with(Path::parse_mod_style))?;
        } else {
            return Err(unknown(meta, Place::Struct));
        }
        Ok(())
    }
}

/// The attributes that are ours.
pub(crate) fn of_event(attributes: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attributes.iter().filter(|attribute| attribute.path().is_ident("event"))
}

/// The text behind `=`.
pub(crate) fn text_of(meta: &ParseNestedMeta<'_>) -> syn::Result<LitStr> {
    meta.value()?.parse()
}

/// A version that cannot be is reported, and 1 taken for it.
fn version_of(meta: &ParseNestedMeta<'_>, report: &mut Report) -> syn::Result<u32> {
    let number: LitInt = meta.value()?.parse()?;
    let version = match number.base10_parse() {
        Ok(0) => Err(Error::new_spanned(&number, "versions start at 1")),
        Ok(version) => Ok(version),
        Err(_) => Err(Error::new_spanned(&number, format!("versions end at {}", u32::MAX))),
    };
    Ok(report.keep(version).unwrap_or(1))
}

/// Applies a rule to a text, and points at the text where it is broken.
pub(crate) fn judge(text: &LitStr, rule: fn(&str) -> Result<(), String>) -> syn::Result<()> {
    rule(&text.value()).map_err(|reason| Error::new_spanned(text, reason))
}

/// Reads an entry that may be given once.
pub(crate) fn set<'s, T>(
    slot: &'s mut Option<T>,
    meta: &ParseNestedMeta<'_>,
    read: impl FnOnce(&ParseNestedMeta<'_>) -> syn::Result<T>,
) -> syn::Result<&'s T> {
    if slot.is_some() {
        return Err(meta.error(format!("`{}` is given twice", written(meta))));
    }
    Ok(slot.insert(read(meta)?))
}

/// Takes a word that stands alone.
pub(crate) fn alone(meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
    if meta.input.peek(Token![=]) || meta.input.peek(syn::token::Paren) {
        return Err(meta.error(format!("`{}` takes no value", written(meta))));
    }
    Ok(())
}

/// The error for an entry that nothing here has, with what may have been meant.
pub(crate) fn unknown(meta: &ParseNestedMeta<'_>, place: Place) -> Error {
    let given = written(meta);
    let (here, there, owner, other) = match place {
        Place::Struct => (&ON_STRUCT[..], &ON_FIELD[..], "the struct", "a field"),
        Place::Field => (&ON_FIELD[..], &ON_STRUCT[..], "a field", "the struct"),
    };
    if there.contains(&&*given) {
        return meta.error(format!("`{given}` belongs on {other}, not on {owner}"));
    }
    let known = here.iter().chain(there).copied();
    match nearest(&given, known) {
        Some(near) if here.contains(&near) => {
            meta.error(format!("unknown attribute `{given}`: did you mean `{near}`?"))
        }
        Some(near) => {
            meta.error(format!("unknown attribute `{given}`: `{near}` belongs on {other}"))
        }
        None => {
            let names: Vec<String> = here.iter().map(|name| format!("`{name}`")).collect();
            let names = names.join(", ");
            meta.error(format!("unknown attribute `{given}`: {owner} may have {names}"))
        }
    }
}

/// An entry's name as it stands there.
fn written(meta: &ParseNestedMeta<'_>) -> String {
    let segments: Vec<String> = meta.path.segments.iter().map(|s| s.ident.to_string()).collect();
    segments.join("::")
}
