# What each part may do, and nothing else. Attach them to the roles that run the parts.
locals {
  outbox  = aws_dynamodb_table.outbox.arn
  pending = "${aws_dynamodb_table.outbox.arn}/index/postrider-pending"
  store   = aws_dynamodb_table.store.arn
  inbox   = aws_dynamodb_table.inbox.arn
}

# A service that changes its tables and tells of it. A transaction needs the rights of what stands in it.
data "aws_iam_policy_document" "producer" {
  statement {
    actions   = ["dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem", "dynamodb:GetItem"]
    resources = concat([local.outbox], var.business_tables)
  }
  statement {
    actions   = ["dynamodb:GetItem"]
    resources = [local.store]
  }
}

data "aws_iam_policy_document" "relay" {
  statement {
    actions   = ["dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive"]
    resources = [local.outbox, local.store]
  }
  statement {
    # What waits, and what has no order, is read by BatchGetItem, which GetItem does not stand for.
    actions   = ["dynamodb:Query", "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:UpdateItem"]
    resources = [local.outbox]
  }
  statement {
    actions   = ["dynamodb:Query"]
    resources = [local.pending]
  }
  statement {
    actions = [
      "dynamodb:Query", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem",
      "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem",
    ]
    resources = [local.store]
  }
  statement {
    actions   = ["dynamodb:DescribeStream", "dynamodb:GetShardIterator", "dynamodb:GetRecords"]
    resources = [aws_dynamodb_table.outbox.stream_arn]
  }
  statement {
    actions   = ["events:PutEvents", "events:DescribeEventBus"]
    resources = [aws_cloudwatch_event_bus.events.arn]
  }
  dynamic "statement" {
    for_each = length(var.queues) > 0 ? [1] : []
    content {
      actions   = ["sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"]
      resources = [for queue in aws_sqs_queue.events : queue.arn]
    }
  }
}

data "aws_iam_policy_document" "consumer" {
  for_each = var.queues
  statement {
    actions = [
      "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl",
      "sqs:GetQueueAttributes",
    ]
    resources = [aws_sqs_queue.events[each.key].arn]
  }
  statement {
    actions   = ["sqs:SendMessage", "sqs:GetQueueUrl", "sqs:GetQueueAttributes"]
    resources = [aws_sqs_queue.dead[each.key].arn]
  }
  statement {
    actions = [
      "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem",
    ]
    resources = concat([local.inbox], var.business_tables)
  }
}

# Who sends dead letters again. Separate, because it makes effects happen.
data "aws_iam_policy_document" "operator" {
  statement {
    actions = [
      "dynamodb:DescribeTable", "dynamodb:DescribeTimeToLive", "dynamodb:Query", "dynamodb:Scan",
      "dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:PutItem", "dynamodb:UpdateItem",
      "dynamodb:DeleteItem", "dynamodb:ConditionCheckItem",
    ]
    resources = [local.outbox, local.pending, local.store, local.inbox]
  }
  dynamic "statement" {
    for_each = length(var.queues) > 0 ? [1] : []
    content {
      actions = [
        "sqs:StartMessageMoveTask", "sqs:ListMessageMoveTasks", "sqs:CancelMessageMoveTask",
        "sqs:ListDeadLetterSourceQueues",
        "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl",
      ]
      resources = [for queue in aws_sqs_queue.dead : queue.arn]
    }
  }
  dynamic "statement" {
    for_each = length(var.queues) > 0 ? [1] : []
    content {
      actions   = ["sqs:SendMessage", "sqs:GetQueueAttributes", "sqs:GetQueueUrl"]
      resources = [for queue in aws_sqs_queue.events : queue.arn]
    }
  }
}

resource "aws_iam_policy" "producer" {
  name   = "${var.name}-producer"
  policy = data.aws_iam_policy_document.producer.json
  tags   = var.tags
}

resource "aws_iam_policy" "relay" {
  name   = "${var.name}-relay"
  policy = data.aws_iam_policy_document.relay.json
  tags   = var.tags
}

resource "aws_iam_policy" "consumer" {
  for_each = var.queues
  name     = "${var.name}-consumer-${each.key}"
  policy   = data.aws_iam_policy_document.consumer[each.key].json
  tags     = var.tags
}

resource "aws_iam_policy" "operator" {
  name   = "${var.name}-operator"
  policy = data.aws_iam_policy_document.operator.json
  tags   = var.tags
}
