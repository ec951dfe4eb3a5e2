//! Hot keys: of which more comes than their share of the window (INV-5, INV-8).

use std::time::Duration;

use postrider_relay::Target;

use crate::world::{World, event};

/// INV-8: a hot key is sent while more than its share of it keeps coming, in order: what enters `waiting` behind what
/// stands there does not hold it back. For as long as that lasted, nothing of it was sent.
#[test]
fn a_hot_key_is_sent_while_more_of_it_comes() {
    let mut world = World::simple();
    world.settings.window.rows_max = 40;
    world.settings.window.page_rows_max = 20;
    world.start(Target::Forever);
    world.settle_down();
    let (mut came, mut sent) = (0, Vec::new());
    for _ in 0..8 {
        for _ in 0..25 {
            world.commit((came..came + 30).map(|n| event(1, n)).collect());
            came += 30;
            world.clock.advance(Duration::from_millis(1));
            world.round();
        }
        sent.push(world.delivered("all"));
    }
    let read = world.healths().remove(0).rows_read;
    assert!(read < came, "all of it was read: {read}");
    assert!(sent.windows(2).all(|two| two[0] < two[1]), "it stood still: {sent:?} of {came}");
    world.run_until(Duration::from_secs(60), |world| world.delivered("all") == came as usize);
    world.check("all");
}
