//! The whole example, against the emulators.

use example_aws_orders::Shop;

/// R002, R051, R060: an order, its event, the bus, the queue, and one charge, on one machine without an account.
#[tokio::test]
async fn each_order_is_charged_once_though_all_is_told_twice() {
    let variables = ["POSTRIDER_DDB_URL", "POSTRIDER_AWS_URL"].map(std::env::var);
    let [Ok(dynamodb), Ok(aws)] = variables else {
        println!("skipped: orders on AWS: no emulators; `cargo x test` starts them");
        return;
    };
    let shop = Shop::open(&dynamodb, &aws).await.unwrap();
    for number in 0..5 {
        shop.orders.place(&format!("o-{number}"), 990).await.unwrap();
    }
    assert!(shop.orders.place("o-1", 1).await.is_err(), "it is there already");
    let began = std::time::Instant::now();
    while shop.messages().0 + shop.messages().1 < 10 {
        assert!(began.elapsed().as_secs() < 60, "{:?}", shop.messages());
        // waits: for messages of a queue
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let charges = shop.provider.charges();
    assert_eq!(charges.len(), 5);
    assert!(charges.values().all(|count| *count == 1), "{charges:?}");
    shop.close().await.unwrap();
}
