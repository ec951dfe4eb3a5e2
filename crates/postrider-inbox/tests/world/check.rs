//! The checker: what the machine must never do, looked at command by command.

use postrider_inbox::command::{Command, DeliveryNo};

use super::{Engine, Track, World, options};

impl<E: Engine> World<E> {
    /// Takes note of a command, and says what is wrong with it.
    pub(super) fn check(&mut self, command: Command) -> Result<(), String> {
        let options = options();
        match &command {
            Command::Dispatch { no, delivery } => {
                self.check_dispatch(*no)?;
                let alone = delivery.alone == Some(true);
                self.check_company(alone)?;
                self.dispatched += 1;
                let track = self.tracks.get_mut(no).ok_or("no such delivery")?;
                (track.in_work, track.alone) = (true, alone);
            }
            Command::Receive { max } => {
                let held = self.tracks.values().filter(|track| !track.settled).count();
                if held + max > options.in_flight_max + options.prefetch_max {
                    return Err(format!("asks for {max} with {held} held"));
                }
                if self.stopping || self.receive.replace(*max).is_some() {
                    return Err("receives while it drains, or twice at once".to_owned());
                }
                return Ok(());
            }
            Command::StopReceiving => self.receive = None,
            Command::Kill { no } => {
                let killed = |c: &Command| matches!(c, Command::Dispatch { no: n, .. } if n == no);
                self.pending.retain(|command| !killed(command));
                self.tracks.get_mut(no).ok_or("no such delivery")?.in_work = false;
            }
            Command::WaitUntil(wake) => {
                if *wake <= self.now {
                    return Err("waits for the past: it would spin".to_owned());
                }
                self.wake = Some(*wake);
            }
            _ => {}
        }
        if let Some(no) = command.settles() {
            let track = self.tracks.get_mut(&no).ok_or("no such delivery")?;
            if std::mem::replace(&mut track.settled, true) || track.in_work {
                return Err(format!("{no:?} is settled twice, or while in work"));
            }
            match command {
                Command::Nack { .. } => self.returned += 1,
                _ => {
                    self.over.insert(track.message);
                }
            }
        }
        if matches!(command, Command::Dispatch { .. } | Command::Extend { .. })
            || command.settles().is_some()
        {
            self.pending.push(command);
        }
        Ok(())
    }

    /// Nothing is begun beside what is alone, nor that beside anything.
    fn check_company(&self, alone: bool) -> Result<(), String> {
        let mut in_work = self.tracks.values().filter(|track| track.in_work);
        match in_work.find(|track| alone || track.alone) {
            Some(other) => Err(format!("begun beside {other:?}, and one of them is alone")),
            None => Ok(()),
        }
    }

    fn check_dispatch(&self, no: DeliveryNo) -> Result<(), String> {
        let track = self.tracks.get(&no).ok_or("no such delivery")?;
        let message = &self.messages[track.message];
        if message.event.is_err() || track.settled || self.stopping {
            return Err(format!("{no:?} must not be started"));
        }
        let in_work: Vec<&Track> = self.tracks.values().filter(|track| track.in_work).collect();
        if in_work.len() >= options().in_flight_max {
            return Err(format!("{} in work already", in_work.len()));
        }
        if in_work.iter().any(|other| self.messages[other.message].key == message.key) {
            return Err(format!("two of key {} in work", message.key));
        }
        if message.late || self.unordered.contains(&message.key) {
            return Ok(());
        }
        let seen = &self.seen[&message.key];
        let earlier = seen.iter().take_while(|index| **index != track.message);
        for index in earlier {
            if !self.over.contains(index) {
                return Err(format!("message {} overtakes {index}", track.message));
            }
        }
        Ok(())
    }
}
