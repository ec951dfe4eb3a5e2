//! How the compiler was called.
//!
//! Cargo tells the compiler of a crate where each of its dependencies stands, and tells nobody else. A
//! macro is run by that compiler and can read it: so a test can hand the same libraries to a compiler
//! that it starts itself, and nothing is built a second time.

use proc_macro::{Delimiter, Group, Literal, Punct, Spacing, TokenStream, TokenTree};

/// The libraries that the crate which is compiled was given, as an array of words for another call of the
/// compiler: `--extern NAME=FILE` and `-L KIND=FOLDER`, and the edition.
#[proc_macro]
pub fn libraries(_: TokenStream) -> TokenStream {
    let words: Vec<String> = std::env::args().collect();
    let mut kept = Vec::new();
    for (at, word) in words.iter().enumerate() {
        match (word.as_str(), words.get(at + 1)) {
            ("--extern" | "-L", Some(value)) => kept.extend([word, value]),
            (edition, _) if edition.starts_with("--edition=") => kept.push(word),
            _ => {}
        }
    }
    let list = kept.into_iter().flat_map(|word| {
        [TokenTree::from(Literal::string(word)), Punct::new(',', Spacing::Alone).into()]
    });
    TokenTree::from(Group::new(Delimiter::Bracket, list.collect())).into()
}
