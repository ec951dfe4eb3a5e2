use postrider_sim::{
    scenario::Scenario,
    world::{Options, run},
};
fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<u64>().unwrap());
    let from = args.next().unwrap_or(0);
    let n = args.next().unwrap_or(1);
    let start = std::time::Instant::now();
    let (mut ms, mut steps, mut delivered, mut bad) = (0, 0, 0, 0);
    for seed in from..from + n {
        let mut s = Scenario::of(seed);
        if std::env::var("CL").is_ok() {
            s.store = postrider_testkit::memory::Kind::ChangeLog;
        }
        let o = run(&s, &Options { trace: n == 1, mutant: None });
        ms += o.tally.virtual_ms;
        steps += o.tally.steps;
        delivered += o.tally.delivered;
        if n == 1 {
            for l in &o.story {
                println!("{l}");
            }
            println!("{:?} {:x}", o.tally, o.fingerprint);
        }
        if let Some(f) = o.failure {
            bad += 1;
            println!("seed {seed}: {:?}: {}", f.invariant, &f.what[..f.what.len().min(330)]);
        }
    }
    let t = start.elapsed().as_secs_f64();
    println!(
        "{n} seeds {bad} bad {t:.2}s {:.1}/s; {:.1} sim h/s; steps/seed {} delivered/seed {}",
        n as f64 / t,
        ms as f64 / 3.6e6 / t,
        steps / n,
        delivered / n
    );
}
