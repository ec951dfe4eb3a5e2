//! The commands and their flags, as clap reads them and as `--help` shows them.

use clap::{Parser, Subcommand};

use crate::{
    adopt, audit, chaos, completions, config, consume, dead, demo, destinations, doctor, enqueue,
    erase, explain, generate, inbox, init, man, migrate, outbox, partitions, queue, reconcile,
    relay, repair, status,
};

/// Change your database and tell the world, as one act.
///
/// Your application writes its change and an event in one transaction. The
/// relay carries committed events to a broker, in order, at least once; an
/// inbox on the other side acts on each at most once.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, max_term_width = 80, after_help = EXAMPLES)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "\
Examples:
  postrider demo
  postrider init sqlite://shop.db
  postrider relay --store sqlite://shop.db --to stdout
  postrider relay --store sqlite://shop.db --to local://queue.db --once
  postrider status --store sqlite://shop.db

Exit codes:
  0    it did what it was asked; or it is healthy
  1    it failed, or was not confirmed
  2    the command line is wrong, or --yes is missing where nobody can be asked
  3    relay --once: events wait, are dead, or were not reached in time
  4    relay --once: another relay holds the lease
  5    what was asked for is written down, and not carried out yet
  6    it was examined, and something is wrong
  78   the configuration is wrong
  130  it was interrupted

Standard output is data; everything else goes to standard error.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(init::InitArgs),
    Relay(relay::RelayArgs),
    Consume(consume::ConsumeArgs),
    Status(status::StatusArgs),
    Doctor(doctor::DoctorArgs),
    Enqueue(enqueue::EnqueueArgs),
    Outbox(outbox::OutboxArgs),
    Dead(dead::DeadArgs),
    Queue(queue::QueueArgs),
    Inbox(inbox::InboxArgs),
    Destinations(destinations::DestinationsArgs),
    Partitions(partitions::PartitionsArgs),
    Reconcile(reconcile::ReconcileArgs),
    Erase(erase::EraseArgs),
    Repair(repair::RepairArgs),
    Migrate(migrate::MigrateArgs),
    Adopt(adopt::AdoptArgs),
    Audit(audit::AuditArgs),
    Demo(demo::DemoArgs),
    Chaos(chaos::ChaosArgs),
    Config(config::ConfigArgs),
    Explain(explain::ExplainArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
    /// Write the generated reference pages into a folder.
    #[command(hide = true)]
    Generate(generate::GenerateArgs),
    /// The relay of the demo, in a process that can be killed.
    #[command(hide = true)]
    DemoRelay(demo::relay::DemoRelayArgs),
    /// The mail handler of the demo, in a process that can be killed.
    #[command(hide = true)]
    DemoMail(demo::mail::DemoMailArgs),
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
