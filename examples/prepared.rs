//! Parameters: rows are inserted as one batch, a query is run with several values.

use thetis::blocking::Connection;

fn main() -> Result<(), thetis::Error> {
    let connection = Connection::open("thetis:")?;
    connection.statement().execute("CREATE TABLE prices (name VARCHAR, low DOUBLE, high DOUBLE)")?;
    let mut insert = connection.prepare("INSERT INTO prices VALUES (?, ?, ?)")?;
    for (name, low, high) in [("copper", 8.9, 9.4), ("zinc", 2.5, 2.9), ("tin", 31.0, 33.5)] {
        insert.bind(1, &name)?.bind(2, &low)?.bind(3, &high)?.add_batch()?;
    }
    insert.execute_batch().map_err(|failed| *failed.error)?;
    let mut within = connection.prepare("SELECT name FROM prices WHERE $1 BETWEEN low AND high")?;
    for offer in [2.7, 9.0, 100.0] {
        let names = within.bind(1, &offer)?.query()?.map(|row| row?.get::<String>("name"));
        println!("{offer}: {:?}", names.collect::<Result<Vec<_>, _>>()?);
    }
    Ok(())
}
