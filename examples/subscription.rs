//! A subscription follows a query: every commit to its tables is an epoch, with what it changes.

use thetis::arrow::util::pretty::pretty_format_batches;
use thetis::blocking::Connection;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let connection = Connection::open("thetis:")?;
    let mut statement = connection.statement();
    statement.execute("CREATE TABLE orders (item VARCHAR, price BIGINT)")?;
    let mut dear = connection.statement().subscribe(
        "SELECT a.item AS item, COUNT(*) AS cheaper FROM orders AS a JOIN orders AS b ON b.price < a.price GROUP BY a.item",
    )?;
    for change in [
        "INSERT INTO orders VALUES ('pen', 2), ('book', 20)",
        "INSERT INTO orders VALUES ('lamp', 45)",
        "DELETE FROM orders WHERE item = 'pen'",
    ] {
        statement.execute(change)?;
        println!("{change}");
        for changes in dear.next_epoch()?.unwrap_or_default() {
            let rows = pretty_format_batches(std::slice::from_ref(&changes.rows))?;
            println!("epoch {}, weights {:?}\n{rows}", changes.epoch, changes.weights);
        }
    }
    Ok(())
}
