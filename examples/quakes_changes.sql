-- The same count, to be watched while it changes: run with --changes.
CREATE STREAM earthquakes (id VARCHAR, ts TIMESTAMP, latitude DOUBLE, longitude DOUBLE, depth_km DOUBLE, mag DOUBLE, place VARCHAR)
  WITH (connector = 'file', path = 'tests/data/earthquakes.csv', format = 'csv', header = true);
CREATE STREAM airports (iata VARCHAR, name VARCHAR, city VARCHAR, state VARCHAR, country VARCHAR, latitude DOUBLE, longitude DOUBLE)
  WITH (connector = 'file', path = 'tests/data/airports.csv', format = 'csv', header = true);

SELECT a.iata, a.city, COUNT(*) AS quakes, MAX(q.mag) AS strongest
FROM earthquakes AS q
JOIN airports AS a ON 2 * 6371 * asin(sqrt(
       power(sin(radians(q.latitude - a.latitude) / 2), 2)
       + cos(radians(q.latitude)) * cos(radians(a.latitude)) * power(sin(radians(q.longitude - a.longitude) / 2), 2))) <= 50
WHERE q.mag >= 1.5
GROUP BY a.iata, a.city
;
