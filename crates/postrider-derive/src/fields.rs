//! `#[event(…)]` on the fields: which field is the id, the key, the tenant, the time, and a header.
//!
//! Invariant: there is one id, at most one of each other, and no header twice.

use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{DataStruct, DeriveInput, Error, Field, GenericArgument, Index, LitStr, Member};
use syn::{PathArguments, Type};

use crate::attribute::{Place, alone, judge, of_event, set, text_of, unknown};
use crate::name::check_header;
use crate::report::Report;

/// A marked field.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    pub(crate) member: Member,
    /// Its type as it stands there.
    pub(crate) ty: &'a Type,
    /// The type of the value; of an `Option`, what is in it.
    pub(crate) value: &'a Type,
    pub(crate) optional: bool,
}

/// The marked fields of a struct.
pub(crate) struct Roles<'a> {
    pub(crate) id: Part<'a>,
    pub(crate) key: Option<Part<'a>>,
    pub(crate) tenant: Option<Part<'a>>,
    pub(crate) occurred_at: Option<Part<'a>>,
    pub(crate) headers: Vec<(LitStr, Part<'a>)>,
}

#[derive(Default)]
struct Given<'a> {
    id: Option<Part<'a>>,
    key: Option<Part<'a>>,
    tenant: Option<Part<'a>>,
    occurred_at: Option<Part<'a>>,
    headers: Vec<(LitStr, Part<'a>)>,
}

impl<'a> Roles<'a> {
    /// Reads the attributes of all fields; `None` after reporting what is wrong.
    pub(crate) fn read(
        input: &DeriveInput,
        data: &'a DataStruct,
        report: &mut Report,
    ) -> Option<Roles<'a>> {
        let mut given = Given::default();
        let mut clean = true;
        for (index, field) in data.fields.iter().enumerate() {
            for attribute in of_event(&field.attrs) {
                let read = attribute
                    .parse_nested_meta(|meta| given.read(&meta, &Part::new(index, field), report));
                clean &= report.keep(read).is_some();
            }
        }
        let Some(id) = given.id else {
            if clean {
                let missing = "no field is marked `#[event(id)]`: say which one it happened to";
                report.add(Error::new_spanned(&input.ident, missing));
            }
            return None;
        };
        if id.optional {
            let message = "the id cannot be an `Option`: every event happened to something";
            report.add(Error::new_spanned(id.ty, message));
        }
        let Given { key, tenant, occurred_at, headers, .. } = given;
        Some(Roles { id, key, tenant, occurred_at, headers })
    }

    /// Parts that are written as text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &Part<'a>> {
        let headers = self.headers.iter().map(|(_, part)| part);
        [&self.id].into_iter().chain(&self.key).chain(&self.tenant).chain(headers)
    }
}

impl<'a> Given<'a> {
    fn read(
        &mut self,
        meta: &ParseNestedMeta<'_>,
        part: &Part<'a>,
        report: &mut Report,
    ) -> syn::Result<()> {
        for (name, slot) in [
            ("id", &mut self.id),
            ("key", &mut self.key),
            ("tenant", &mut self.tenant),
            ("occurred_at", &mut self.occurred_at),
        ] {
            if !meta.path.is_ident(name) {
                continue;
            }
            alone(meta)?;
            if let Some(first) = slot.as_ref().filter(|first| first.member != part.member) {
                let first = first.name();
                return Err(meta.error(format!("`{name}` is on the field `{first}` already")));
            }
            return set(slot, meta, |_| Ok(part.clone())).map(drop);
        }
        if !meta.path.is_ident("header") {
            return Err(unknown(meta, Place::Field));
        }
        let name = text_of(meta)?;
        report.keep(judge(&name, check_header));
        if self.headers.iter().any(|(known, _)| known.value() == name.value()) {
            let message = format!("the header `{}` is given twice", name.value());
            report.add(Error::new_spanned(&name, message));
        }
        self.headers.push((name, part.clone()));
        Ok(())
    }
}

impl<'a> Part<'a> {
    fn new(index: usize, field: &'a Field) -> Part<'a> {
        let member = field.ident.clone().map_or_else(
            || Member::Unnamed(Index { index: index as u32, span: field.span() }),
            Member::Named,
        );
        let inner = inside_option(&field.ty);
        Part { member, ty: &field.ty, value: inner.unwrap_or(&field.ty), optional: inner.is_some() }
    }

    fn name(&self) -> String {
        match &self.member {
            Member::Named(ident) => ident.to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        }
    }
}

/// The `T` of an `Option<T>`, told by its name: a macro sees no types.
fn inside_option(ty: &Type) -> Option<&Type> {
    let path = match ty {
        Type::Group(group) => return inside_option(&group.elem),
        Type::Paren(paren) => return inside_option(&paren.elem),
        Type::Path(path) if path.qself.is_none() => &path.path,
        _ => return None,
    };
    let last = path.segments.last().filter(|segment| segment.ident == "Option")?;
    match &last.arguments {
        PathArguments::AngleBracketed(arguments) if arguments.args.len() == 1 => {
            match arguments.args.first() {
                Some(GenericArgument::Type(inner)) => Some(inner),
                _ => None,
            }
        }
        _ => None,
    }
}
