//! `postrider destinations remove`, and what a removal that was cut off has left.

use postrider_core::source::DefinitionChange;
use postrider_core::{Destination, operate::Note};

use super::{RemoveArgs, find};
use crate::confirm::{self, Answer};
use crate::failure::{Exit, Failure};
use crate::global::Store;
use crate::shape;
use crate::store::Place;
use crate::terminal::note;

pub(super) async fn remove(args: &RemoveArgs) -> Result<Exit, Failure> {
    let by = args.by.note()?;
    let store = args.global.open().await?;
    if args.name.as_str() == Destination::UNROUTED {
        return Err(Failure::plain("`unrouted` is built in")
            .advice("Nothing was changed. It keeps what no route takes."));
    }
    let view = match find(&store, &args.name).await {
        Err(_) if has_leftovers(args).await? => return finish_removal(args, &store, &by).await,
        found => found?,
    };
    let removal = shape::Removal::from(&view);
    if args.dry_run {
        note(&format!("would go with {}:", args.name));
        args.global.out().one(&removal, || removal.sheet())?;
        return Ok(Exit::Success);
    }
    note(&format!("with {} go:\n{}", args.name, removal.sheet().trim_end()));
    let answer = confirm::name(args.yes, "this cannot be undone", args.name.as_str()).await?;
    if let Answer::Stop(exit) = answer {
        return Ok(exit);
    }
    let remove = vec![args.name.clone()];
    let change = DefinitionChange { remove, ..DefinitionChange::default() };
    store.operator.apply(&change, &by).await?;
    note(&format!("{} is removed", args.name));
    args.global.out().one(&removal, String::new)?;
    Ok(Exit::Success)
}

/// Whether a removal of it was cut off. The other stores remove a destination with its rows at once.
async fn has_leftovers(args: &RemoveArgs) -> Result<bool, Failure> {
    match args.global.place()? {
        Place::Postgres(database) => Ok(database.store()?.has_leftovers(&args.name).await?),
        _ => Ok(false),
    }
}

/// Deletes what a removal that was cut off has left. It was decided then that it goes: nobody is asked again.
async fn finish_removal(args: &RemoveArgs, store: &Store, by: &Note) -> Result<Exit, Failure> {
    let removed = format!("{} was removed already, and its removal was cut off", args.name);
    if args.dry_run {
        note(&format!("{removed}: what is left of it would go"));
        return Ok(Exit::Success);
    }
    let remove = vec![args.name.clone()];
    let change = DefinitionChange { remove, ..DefinitionChange::default() };
    store.operator.apply(&change, by).await?;
    note(&format!("{removed}: what was left of it is gone"));
    Ok(Exit::Success)
}
