//! A materialized view keeps its result; a session reads its own writes.

use thetis::blocking::Connection;

fn main() -> Result<(), thetis::Error> {
    let connection = Connection::open("thetis:")?;
    let mut statement = connection.statement();
    statement.execute("CREATE TABLE shifts (worker VARCHAR, starts BIGINT, ends BIGINT)")?;
    statement.execute("CREATE TABLE alarms (at BIGINT, what VARCHAR)")?;
    statement.execute(
        "CREATE MATERIALIZED VIEW busy AS
         SELECT s.worker AS worker, COUNT(*) AS alarms
         FROM shifts AS s JOIN alarms AS a ON a.at BETWEEN s.starts AND s.ends GROUP BY s.worker",
    )?;
    statement.execute("INSERT INTO shifts VALUES ('Ada', 0, 10), ('Grace', 8, 20)")?;
    statement.execute("INSERT INTO alarms VALUES (3, 'door'), (9, 'smoke'), (15, 'door')")?;
    for row in statement.query("SELECT worker, alarms FROM busy ORDER BY worker")? {
        let row = row?;
        println!("{}: {}", row.get::<String>("worker")?, row.get::<i64>("alarms")?);
    }
    Ok(())
}
