# The tables that `postrider init dynamodb://…` makes, for those who make tables by Terraform alone.
resource "aws_dynamodb_table" "outbox" {
  name             = "${var.name}-outbox"
  billing_mode     = "PAY_PER_REQUEST"
  hash_key         = "pk"
  range_key        = "sk"
  stream_enabled   = true
  stream_view_type = "NEW_IMAGE"

  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  attribute {
    name = "pr_shard"
    type = "S"
  }
  attribute {
    name = "pr_at"
    type = "N"
  }

  # Only what is pending has a shard, so an index of a million published events is empty.
  global_secondary_index {
    name            = "postrider-pending"
    hash_key        = "pr_shard"
    range_key       = "pr_at"
    projection_type = "KEYS_ONLY"
  }

  # Set when an event was published, never before.
  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  deletion_protection_enabled = true
  tags                        = var.tags
}

# Leases, destinations, and what waits.
resource "aws_dynamodb_table" "store" {
  name         = "${var.name}-store"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"
  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  deletion_protection_enabled = true
  tags                        = var.tags
}

# What the store is, for ever: without it every part says that the table is no store of Postrider. `postrider init` finds
# it there and changes nothing.
resource "aws_dynamodb_table_item" "facts" {
  count      = var.initialised ? 0 : 1
  table_name = aws_dynamodb_table.store.name
  hash_key   = aws_dynamodb_table.store.hash_key
  range_key  = aws_dynamodb_table.store.range_key
  item = jsonencode({
    pk         = { S = "control" }
    sk         = { S = "facts" }
    schema     = { N = "1" }
    partitions = { N = tostring(var.partitions) }
    source     = { S = var.event_source }
  })
  # Another count of partitions would send what waits to nobody; and without the item nobody opens the tables that
  # their own protection keeps.
  lifecycle {
    ignore_changes  = [item]
    prevent_destroy = true
  }
}

# What was done, kept for longer than any queue may deliver again.
resource "aws_dynamodb_table" "inbox" {
  name         = "${var.name}-inbox"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"
  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  ttl {
    attribute_name = "expires_at"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
  deletion_protection_enabled = true
  tags                        = var.tags
}
