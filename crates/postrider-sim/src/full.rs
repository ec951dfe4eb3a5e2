//! Full: what an operator does about destinations of which as many events wait as may, when the faults are over.

use crate::operator;
use crate::world::World;

/// For so many looks a full destination is given room by letting its dead letters go.
const FULL_LOOKS: u32 = 60;

impl World {
    /// What is full of dead letters reads on when they are let go. What is full of events that are tried again does not:
    /// whether they or their endpoint are to blame, only what is not read can show, and an operator raises the bound.
    pub(crate) fn make_room(&mut self, look: u32) {
        if look <= FULL_LOOKS {
            return operator::let_go(&self.shared, &self.asked);
        }
        self.shared.raise_waiting_max();
        let slots: Vec<u8> = self.relays.keys().copied().collect();
        for slot in slots {
            let Some((relay, _)) = self.relays.get(&slot) else { continue };
            self.shared.kernel.kill(relay.process);
            self.start_relay(slot);
        }
    }
}
