SELECT name FROM topic ORDER BY name;
