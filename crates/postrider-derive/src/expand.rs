//! The implementation that is written for a struct.
//!
//! Invariant: it names nothing but `std` and what the crate `postrider` shows in `__private`, both by
//! their full paths, so that no name of the user's module can change its meaning.

use proc_macro2::{Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, WhereClause, parse_quote};

use crate::attribute::Container;
use crate::fields::{Part, Roles};
use crate::report::Report;

/// The implementation of `TypedEvent`, or all that is wrong with the attributes.
pub(crate) fn event(input: &DeriveInput) -> syn::Result<TokenStream> {
    let refusal = "is no event: an event has one type and one version. Derive `Event` for structs, \
                   one for each thing that can happen";
    let data = match &input.data {
        Data::Struct(data) => data,
        Data::Enum(data) => {
            return Err(Error::new(data.enum_token.span, format!("an enum {refusal}")));
        }
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span, format!("a union {refusal}")));
        }
    };
    let mut report = Report::default();
    let container = Container::read(input, &mut report);
    let roles = Roles::read(input, data, &mut report);
    match (container, roles) {
        (Some(container), Some(roles)) if report.is_clean() => {
            Ok(implementation(input, &container, &roles))
        }
        _ => {
            report.finish()?;
            Err(Error::new_spanned(&input.ident, "`Event` cannot be derived"))
        }
    }
}

fn implementation(input: &DeriveInput, container: &Container, roles: &Roles<'_>) -> TokenStream {
    let Container { event_type, version, aggregate, root } = container;
    let private = quote!(#root::__private);
    let name = &input.ident;
    let (parameters, arguments, written) = input.generics.split_for_impl();
    let bounds = bounds(input, &private, roles, written);
    let id = text(&roles.id);
    let key = method("ordering_key", roles.key.as_ref());
    let tenant = method("tenant", roles.tenant.as_ref());
    let occurred_at = roles.occurred_at.as_ref().map(|part| occurred_at(&private, part));
    let headers = headers(&private, roles);
    quote! {
        #[automatically_derived]
        impl #parameters #private::TypedEvent for #name #arguments #bounds {
            const TYPE: &'static str = #event_type;
            const VERSION: u32 = #version;
            const AGGREGATE: &'static str = #aggregate;

            fn aggregate_id(&self) -> ::std::borrow::Cow<'_, str> {
                ::std::borrow::Cow::Owned(#id)
            }
            #key
            #tenant
            #occurred_at
            #headers
        }
    }
}

/// A field as text.
fn text(part: &Part<'_>) -> TokenStream {
    let member = &part.member;
    let span = at(part);
    quote_spanned!(span=> ::std::string::ToString::to_string(&self.#member))
}

/// A field as text that may be missing.
fn optional_text(part: &Part<'_>) -> TokenStream {
    if !part.optional {
        let text = text(part);
        return quote!(::std::option::Option::Some(#text));
    }
    let member = &part.member;
    let span = at(part);
    quote_spanned! {span=>
        ::std::option::Option::map(
            ::std::option::Option::as_ref(&self.#member),
            ::std::string::ToString::to_string,
        )
    }
}

/// A method that answers with a field as text.
fn method(name: &str, part: Option<&Part<'_>>) -> Option<TokenStream> {
    let text = optional_text(part?);
    let name = proc_macro2::Ident::new(name, Span::call_site());
    Some(quote! {
        fn #name(&self) -> ::std::option::Option<::std::borrow::Cow<'_, str>> {
            ::std::option::Option::map(#text, ::std::borrow::Cow::Owned)
        }
    })
}

fn occurred_at(private: &TokenStream, part: &Part<'_>) -> TokenStream {
    let member = &part.member;
    let span = at(part);
    let value = match part.optional {
        true => quote!(::std::clone::Clone::clone(&self.#member)),
        false => {
            quote!(::std::option::Option::Some(::std::clone::Clone::clone(&self.#member)))
        }
    };
    let converted = quote_spanned! {span=>
        ::std::option::Option::map(#value, ::std::convert::Into::<#private::Timestamp>::into)
    };
    quote! {
        fn occurred_at(&self) -> ::std::option::Option<#private::Timestamp> {
            #converted
        }
    }
}

fn headers(private: &TokenStream, roles: &Roles<'_>) -> Option<TokenStream> {
    if roles.headers.is_empty() {
        return None;
    }
    let entries = roles.headers.iter().map(|(name, part)| {
        let text = optional_text(part);
        quote! {
            if let ::std::option::Option::Some(text) = #text {
                headers.insert(::std::string::String::from(#name), text);
            }
        }
    });
    Some(quote! {
        fn headers(&self) -> #private::Headers {
            let mut headers = #private::Headers::new();
            #(#entries)*
            headers
        }
    })
}

/// The struct's own bounds, and, where it has type parameters, what the methods ask of them. A bound
/// that names no parameter is left to the compiler, which points at the field.
fn bounds(
    input: &DeriveInput,
    private: &TokenStream,
    roles: &Roles<'_>,
    written: Option<&WhereClause>,
) -> Option<WhereClause> {
    let parameters: Vec<String> =
        input.generics.type_params().map(|parameter| parameter.ident.to_string()).collect();
    if parameters.is_empty() {
        return written.cloned();
    }
    let mut clause = written.cloned().unwrap_or_else(|| parse_quote!(where));
    clause.predicates.push(parse_quote!(Self: #private::Serialize));
    let generic = |part: &&Part<'_>| names_any(part.value.to_token_stream(), &parameters);
    for part in roles.texts().filter(generic) {
        let value = part.value;
        clause.predicates.push(parse_quote!(#value: ::std::fmt::Display));
    }
    for part in roles.occurred_at.iter().filter(generic) {
        let value = part.value;
        clause.predicates.push(parse_quote! {
            #value: ::std::clone::Clone + ::std::convert::Into<#private::Timestamp>
        });
    }
    Some(clause)
}

/// Whether one of the names stands among the tokens.
fn names_any(tokens: TokenStream, names: &[String]) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => names.contains(&ident.to_string()),
        TokenTree::Group(group) => names_any(group.stream(), names),
        _ => false,
    })
}

/// Where a complaint about the field's type shall point. Names resolve as in the rest of what is
/// written: the type may come from another macro, which knows no `self`.
fn at(part: &Part<'_>) -> Span {
    Span::call_site().located_at(part.value.span())
}
