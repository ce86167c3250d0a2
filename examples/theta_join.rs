//! A continuous theta join over two generators, cancelled after two seconds.
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), thetis::Error> {
    let connection = thetis::Driver::open("thetis:")?;
    for (stream, seed) in [("riders", 1), ("bikes", 2)] {
        let define = format!(
            "CREATE STREAM {stream} (id BIGINT, x BIGINT, y BIGINT) WITH (
               connector = 'generator', rows_per_second = 200, seed = {seed}, column.id = 'sequence(1)',
               column.x = 'uniform(0, 5000)', column.y = 'uniform(0, 5000)')"
        );
        connection.statement().execute(&define).await?;
    }
    let mut statement = connection.statement();
    let cancel = statement.cancel_handle();
    let mut pairs = statement
        .query(
            "SELECT r.id AS rider, b.id AS bike, abs(r.x - b.x) + abs(r.y - b.y) AS metres
             FROM riders AS r JOIN bikes AS b
             ON abs(r.x - b.x) <= 300 AND abs(r.y - b.y) <= 300 AND abs(r.x - b.x) + abs(r.y - b.y) <= 300",
        )
        .await?;
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        cancel.cancel();
    });
    let mut found = 0;
    let end = loop {
        match pairs.next_row().await {
            Ok(Some(pair)) if found < 5 => println!("rider {} has bike {}", pair.at::<i64>(0)?, pair.at::<i64>(1)?),
            Ok(Some(_)) => {}
            Ok(None) => break "the end".to_owned(),
            Err(error) => break error.to_string(),
        }
        found += 1;
    };
    println!("{found} pairs of {} rows, then: {end}", pairs.progress().rows_in);
    Ok(())
}
